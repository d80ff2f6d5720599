"""pytest: the new batch is pooled with the training data only if this passes."""

import exchangeable as ex
from exchangeable.testing import assert_exchangeable


def test_batch_can_be_pooled():
    result = ex.compare("train.csv", "batch.csv", label="y")
    assert result.same_columns, str(result)
    assert not result.rejected, str(result)


def test_order_within_the_batch_does_not_matter():
    assert_exchangeable("batch.csv", "y")
