"""Runs a sweep on a Ray cluster."""

import sys

import plimsoll
import pyarrow
import ray


@ray.remote(max_retries=-1)
def run(point: plimsoll.Point) -> pyarrow.Table:
    return plimsoll.run(point, jobs=1)


def sweep(experiment: str) -> pyarrow.Table:
    tables = [run.remote(point) for point in plimsoll.points(experiment)]
    return pyarrow.concat_tables(ray.get(tables))


if __name__ == "__main__":
    address, experiment = sys.argv[1:]
    ray.init(address)
    print(sweep(experiment).to_pandas())
