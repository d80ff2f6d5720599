"""dbt: the verdict as a table with one row. A test reads it, and `dbt build` skips what follows if the test fails."""

import pandas as pd

import exchangeable as ex


def model(dbt, session):
    dbt.config(materialized="table")
    result = ex.compare(dbt.ref("train").df(), dbt.ref("batch").df(), label="y")
    poolable = result.same_columns and not result.rejected
    return pd.DataFrame([{"poolable": poolable, "verdict": str(result)}])
