//! The messages of a Perfetto trace that we write: the part of `perfetto_trace.proto` that a trace
//! of slices, flows and counters needs. The names and field numbers are Perfetto's.

use prost::Message;

/// The number of the field `packet` in the message `Trace`. The field holds the packets of the
/// trace.
pub(super) const PACKET: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(super) sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub(super) track_descriptor: Option<TrackDescriptor>,
}

/// The values of `TracePacket::sequence_flags`. With `STATE_CLEARED`, earlier ids of names become
/// invalid. With `NEEDS_STATE`, the packet uses ids of names.
pub(super) const STATE_CLEARED: u32 = 1;
pub(super) const NEEDS_STATE: u32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(super) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "11")]
    pub(super) child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    pub(super) sibling_order_rank: Option<i32>,
}

/// The value of `TrackDescriptor::child_ordering` that orders children by their ranks.
pub(super) const EXPLICIT: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    pub(super) unit_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Type {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(super) event_categories: Vec<Named>,
    #[prost(message, repeated, tag = "2")]
    pub(super) event_names: Vec<Named>,
    #[prost(message, repeated, tag = "3")]
    pub(super) debug_annotation_names: Vec<Named>,
}

/// A name with its id. Perfetto's `EventCategory`, `EventName` and `DebugAnnotationName` all have
/// these fields.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Named {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
}

/// The numbers of the fields of `TracePacket` in a packet with an event.
pub(super) mod packet {
    pub(in super::super) const TIMESTAMP: u32 = 8;
    pub(in super::super) const SEQUENCE: u32 = 10;
    pub(in super::super) const EVENT: u32 = 11;
    pub(in super::super) const FLAGS: u32 = 13;
}

/// The numbers of the fields of `TrackEvent`, and of the message `DebugAnnotation` in its field
/// `debug_annotations` (here `VALUE`), which has the name and the content of a value.
///
/// In Perfetto's definition, categories, flows and ends of flows are repeated fields. Our events
/// have at most one of each, which is encoded in the same way as an optional field.
pub(super) mod event {
    pub(in super::super) const CATEGORY: u32 = 3;
    pub(in super::super) const VALUE: u32 = 4;
    pub(in super::super) const VALUE_NAME: u32 = 1;
    pub(in super::super) const VALUE_NUMBER: u32 = 3;
    pub(in super::super) const VALUE_TEXT: u32 = 6;
    pub(in super::super) const TYPE: u32 = 9;
    pub(in super::super) const NAME: u32 = 10;
    pub(in super::super) const TRACK: u32 = 11;
    pub(in super::super) const COUNTER: u32 = 30;
    pub(in super::super) const FLOW: u32 = 47;
    pub(in super::super) const FLOW_END: u32 = 48;
}
