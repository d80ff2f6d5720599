"""Great Expectations 1: an expectation for batches that are pandas frames."""

import great_expectations as gx
import pandas as pd
from great_expectations.expectations.expectation import BatchExpectation

import exchangeable as ex


class ExpectBatchToBePoolable(BatchExpectation):
    """Expect the batch to look like a random sample of reference and batch combined."""

    reference: str
    label: str
    success_keys = ("reference", "label")

    def _validate(self, metrics, runtime_configuration=None, execution_engine=None):
        result = ex.compare(self.reference, execution_engine.get_domain_records({}), label=self.label)
        success = result.same_columns and not result.rejected
        return {"success": success, "result": {"observed_value": str(result)}}


if __name__ == "__main__":
    source = gx.get_context(mode="ephemeral").data_sources.add_pandas("files")
    batches = source.add_dataframe_asset("batch").add_batch_definition_whole_dataframe("whole")
    batch = batches.get_batch({"dataframe": pd.read_csv("batch.csv")})
    outcome = batch.validate(ExpectBatchToBePoolable(reference="train.csv", label="y"))
    raise SystemExit(0 if outcome.success else str(outcome))
