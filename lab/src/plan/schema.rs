//! The JSON Schema of experiment files, with which editors complete and check these files. The
//! schema is made from the same declarations that the reader of the files uses.

use std::ptr;

use plimsoll_mm::tunables::Knob;
use plimsoll_sim::profile::CostKey;
use serde_json::{Map, Value, json};

use super::keys::{DESIGN, FILE, Key, Kind};
use super::parameter::Parameter;
use super::workloads::{WORKLOADS, Workload};
use crate::experiment::{Number, Subject, subjects};

/// The largest whole number that a TOML file can hold.
const WHOLE_MAX: i64 = i64::MAX;

/// The JSON Schema as text, with a newline at the end.
///
/// # Panics
/// Never: every value of the schema is a text, a number or a list of those.
#[must_use]
pub fn text() -> String {
    let mut schema = table(FILE);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("An experiment of Plimsoll");
    serde_json::to_string_pretty(&schema).expect("a schema is plain data") + "\n"
}

fn table(keys: &[Key]) -> Value {
    let mut properties: Map<String, Value> = keys
        .iter()
        .map(|key| (key.name.to_owned(), described(kind(key.kind), key.about)))
        .collect();
    if ptr::eq(keys, DESIGN) {
        properties.extend(subjects().flat_map(|of| of.of_designs()).map(number));
    }
    let required: Vec<&str> = keys
        .iter()
        .filter(|key| key.required)
        .map(|key| key.name)
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn described(mut schema: Value, about: &str) -> Value {
    schema["description"] = json!(about);
    schema
}

fn kind(kind: Kind) -> Value {
    let text = || json!({ "type": "string", "minLength": 1 });
    match kind {
        Kind::Whole(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Number => json!({ "type": "number", "minimum": 0 }),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Text => text(),
        Kind::Choice(choices) => json!({ "enum": choices }),
        Kind::Texts => json!({ "type": "array", "items": text(), "minItems": 1 }),
        Kind::Time => json!({ "type": "string", "pattern": "^[0-9]+(s|ms|us|ns)$" }),
        Kind::Cpus => {
            json!({ "type": "string", "pattern": "^ *[0-9]+(-[0-9]+)?( *, *[0-9]+(-[0-9]+)?)* *$" })
        }
        Kind::Knobs => json!({
            "type": "object",
            "properties": Map::from_iter(knobs()),
            "additionalProperties": false,
        }),
        Kind::Prices => json!({
            "type": "object",
            "properties": named(prices(), factor),
            "additionalProperties": false,
        }),
        Kind::Workload => {
            let of_experiments = subjects().map(subject);
            let all = WORKLOADS.iter().map(workload).chain(of_experiments);
            json!({ "oneOf": all.collect::<Vec<_>>() })
        }
        Kind::Sweep(keys) => sweep(keys),
        Kind::Tables(keys) => json!({ "type": "array", "items": table(keys), "minItems": 1 }),
        Kind::Table(keys) => table(keys),
        Kind::Pairs => {
            let pair = json!({ "type": "array", "items": text(), "minItems": 2, "maxItems": 2 });
            json!({ "type": "array", "items": pair, "minItems": 1 })
        }
        Kind::Numbers => {
            let number = json!({ "type": "number" });
            json!({ "oneOf": [number, { "type": "array", "items": number, "minItems": 1 }] })
        }
        Kind::Quick => numbers(),
        Kind::On => json!({ "type": "object", "additionalProperties": numbers() }),
        Kind::Named => json!({ "type": "object", "additionalProperties": text() }),
    }
}

/// Makes the schema of a table that can have the numeric settings of the workload of any built-in
/// experiment.
fn numbers() -> Value {
    let numbers = subjects().flat_map(|of| of.numbers());
    json!({ "type": "object", "properties": Map::from_iter(numbers.map(number)) })
}

/// Makes the schema of a number that a file can give for the workload of a built-in experiment.
fn number(of: &Number) -> (String, Value) {
    let one = json!({ "type": "integer", "minimum": of.min, "maximum": of.max });
    let schema = if of.is_list {
        json!({ "type": "array", "items": one, "minItems": 1 })
    } else {
        one
    };
    (of.name.to_owned(), described(schema, of.about))
}

/// Makes the schema of the workload of a built-in experiment.
fn subject(of: &dyn Subject) -> Value {
    let mut properties: Map<String, Value> = of.numbers().iter().map(number).collect();
    let name = described(json!({ "const": of.workload() }), of.about());
    properties.insert("name".to_owned(), name);
    let required: Vec<&String> = properties.keys().collect();
    json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}

fn workload(of: &Workload) -> Value {
    let name = described(json!({ "const": of.name }), of.about);
    let parameter = |of: &Parameter| {
        let schema = json!({ "type": "integer", "minimum": of.min, "maximum": of.max });
        let about = format!(
            "{}; unit: {}; default: {}",
            of.about,
            of.unit,
            of.default_text()
        );
        (of.name.to_owned(), described(schema, &about))
    };
    let mut properties: Map<String, Value> = of.parameters.iter().map(parameter).collect();
    properties.insert("name".to_owned(), name);
    json!({
        "type": "object",
        "properties": properties,
        "required": ["name"],
        "additionalProperties": false,
    })
}

fn sweep(keys: &[Key]) -> Value {
    let list = |items: Value| json!({ "type": "array", "items": items, "minItems": 1 });
    let text = || list(json!({ "type": "string", "minLength": 1 }));
    let whole = || list(json!({ "type": "integer", "minimum": 0, "maximum": WHOLE_MAX }));
    let choice = |name: &str| {
        let of = FILE.iter().find(|key| key.name == name);
        list(of.map_or_else(|| json!({}), |key| kind(key.kind)))
    };
    let mut parameters: Vec<String> = WORKLOADS
        .iter()
        .flat_map(|of| of.parameters)
        .map(|of| format!("workload.{}", of.name))
        .collect();
    parameters.sort();
    parameters.dedup();
    let mut schema = table(keys);
    let axes = named(parameters, whole)
        .into_iter()
        .chain(
            knobs()
                .into_iter()
                .map(|(name, of)| (format!("knob:{name}"), list(of))),
        )
        .chain(named(prices().map(|name| format!("price:{name}")), || {
            list(factor())
        }))
        .chain([
            ("machine".to_owned(), text()),
            ("memory".to_owned(), choice("memory")),
            ("card".to_owned(), choice("card")),
        ]);
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.extend(axes);
    }
    schema
}

/// Makes properties of a JSON object: one for each of `names`, with the schema that `schema` makes.
fn named(
    names: impl IntoIterator<Item = String>,
    schema: impl Fn() -> Value,
) -> Map<String, Value> {
    names.into_iter().map(|name| (name, schema())).collect()
}

fn factor() -> Value {
    json!({ "type": "number", "minimum": 0.01, "maximum": 100 })
}

/// Makes the schema of each knob, under each of the knob's names. The unit depends on the name. If
/// Linux does not have the knob, there is only one name.
fn knobs() -> Vec<(String, Value)> {
    let schema = |name: &str, unit: &str, min: u64, max: u64| {
        let schema = json!({ "type": "integer", "minimum": min, "maximum": max });
        (name.to_owned(), described(schema, &format!("unit: {unit}")))
    };
    let of = |knob: Knob| {
        let spec = knob.spec();
        let (unit, factor) = spec.linux_unit;
        let (min, max) = (spec.min.div_ceil(factor), spec.max / factor);
        let in_linux = schema(spec.linux, unit, min, max);
        [schema(spec.name, spec.unit, spec.min, spec.max), in_linux]
    };
    let knobs = Knob::ALL.into_iter().flat_map(of);
    knobs.filter(|(name, _)| !name.contains(' ')).collect()
}

fn prices() -> impl Iterator<Item = String> {
    CostKey::all().map(|key| key.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_names_every_key_workload_parameter_and_knob() {
        let schema: Value = serde_json::from_str(&text()).expect("it is JSON");
        for key in FILE {
            assert!(
                schema["properties"][key.name]["description"].is_string(),
                "{}",
                key.name
            );
        }
        let workloads = schema["properties"]["workload"]["oneOf"]
            .as_array()
            .expect("a list");
        assert_eq!(workloads.len(), WORKLOADS.len() + subjects().count());
        assert_eq!(workloads[2]["properties"]["pages"]["maximum"], 1 << 20);
        let knobs = &schema["properties"]["knobs"]["properties"];
        assert_eq!(knobs["vm.stat_interval"]["maximum"], 3600);
        assert_eq!(knobs["stat_interval_ms"]["maximum"], 3_600_000);
        assert!(knobs["hold_time_max_ns"].is_object());
        let sweep = &schema["properties"]["sweep"]["properties"];
        for axis in [
            "machine",
            "workload.workers",
            "knob:batch_scale_max",
            "price:work.fault",
            "random",
        ] {
            assert!(sweep[axis].is_object(), "{axis}");
        }
    }
}
