"""Prefect 3: a rejected batch fails the task `compare`, and with it the flow, before `pool` runs."""

import polars as pl
from prefect import flow, task

import exchangeable as ex


@task
def compare(reference: str, current: str) -> None:
    result = ex.compare(reference, current, label="y")
    if result.rejected or not result.same_columns:
        raise RuntimeError(str(result))


@task
def pool(reference: str, current: str) -> None:
    pl.concat([pl.read_csv(reference), pl.read_csv(current)]).write_csv("pooled.csv")


@flow
def pool_batch(reference: str = "train.csv", current: str = "batch.csv") -> None:
    compare(reference, current)
    pool(reference, current)


if __name__ == "__main__":
    pool_batch()
