"""Airflow 3: a rejected batch fails the task `compare`, so `pool` does not run."""

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException


@task
def compare(reference: str, current: str) -> None:
    import exchangeable as ex

    result = ex.compare(reference, current, label="y")
    if result.rejected or not result.same_columns:
        raise AirflowFailException(str(result))  # no retries: the same data gives the same verdict


@task
def pool(reference: str, current: str) -> None:
    import polars as pl

    pl.concat([pl.read_csv(reference), pl.read_csv(current)]).write_csv("pooled.csv")


@dag(schedule=None)
def pool_batch():
    compare("train.csv", "batch.csv") >> pool("train.csv", "batch.csv")


pool_batch()
