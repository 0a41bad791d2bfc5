"""Runs a sweep on a Dask cluster."""

import sys

import plimsoll
import pyarrow
from distributed import Client


def sweep(client: Client, experiment: str) -> pyarrow.Table:
    points = plimsoll.points(experiment)
    keys = [f"{experiment}-{point.index}" for point in points]
    futures = client.map(plimsoll.run, points, key=keys, jobs=1)
    return pyarrow.concat_tables(client.gather(futures))


if __name__ == "__main__":
    scheduler, experiment = sys.argv[1:]
    print(sweep(Client(scheduler), experiment).to_pandas())
