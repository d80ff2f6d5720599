"""Spark frames of files and Kafka topics, as the command line reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CORRUPT = "_corrupt_record"  # the column in which Spark puts a line that it cannot parse
SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"  # the package of its source, without the version of Spark


def kind_of(path: str) -> str:
    """Return the kind of the files at a path, by their suffixes.

    >>> kind_of("readings/2026.csv.gz"), kind_of("s3a://bucket/readings.parquet")
    ('csv', 'parquet')
    """
    root = Path(path)
    names = [root.name] if not root.is_dir() else [file.name for file in sorted(root.rglob("*")) if file.is_file()]
    kinds = {SUFFIXES[suffix] for name in names for suffix in Path(name).suffixes if suffix in SUFFIXES}
    if len(kinds) != 1:
        got = " and ".join(sorted(kinds)) or "none"
        raise ValueError(f"{path}: the suffixes of the files must be of one known kind, got {got}: specify the kind")
    return kinds.pop()


def table(
    spark: SparkSession, source: str, kind: str, *, lenient: bool = False, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Read files: Parquet, CSV with a header (all columns are text), or JSON Lines.

    A line that cannot be parsed fails the job; with ``lenient`` it becomes a row of nulls, to be reported as bad.
    """
    reader = spark.read.options(**_settings(kind, lenient, options))
    if kind == "parquet":
        return reader.parquet(source)
    return _null_corrupt_rows(reader.schema(_schema(spark, source, kind, lenient, options)).format(kind).load(source))


def stream(
    spark: SparkSession,
    source: str,
    kind: str,
    *,
    schema: str | None = None,
    lenient: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a stream: files that appear in a folder, or the messages of a Kafka topic, which hold JSON.

    The default schema is that of the files that exist already; an example is ``device string, seq long, reading
    double``. For Kafka, ``source`` names the servers, and the option ``subscribe`` names the topic. Its frame has the
    columns of the schema, ``kafka_key``, ``kafka_partition`` and ``kafka_offset``.
    """
    if kind == "kafka":
        return _messages(spark, source, schema, options or {})
    reader = spark.readStream.options(**_settings(kind, lenient, options)).format(kind)
    if schema is not None:
        extra = f", {CORRUPT} string" if lenient and kind != "parquet" else ""
        return _null_corrupt_rows(reader.schema(schema + extra).load(source))
    if kind == "parquet":
        return reader.schema(spark.read.parquet(source).schema).load(source)
    return _null_corrupt_rows(reader.schema(_schema(spark, source, kind, lenient, options)).load(source))


def parse_order(frame: DataFrame, order: str, kind: str) -> DataFrame:
    """Parse the order column if it is text, as in CSV; what cannot be parsed becomes null."""
    from pyspark.sql import functions as F

    if dict(frame.dtypes).get(order) != "string":
        return frame
    name = quote(order)
    return frame.withColumn(order, F.expr(f"try_cast({name} AS {kind})"))


def quote(name: str) -> str:
    """Quote the name of a column for an expression.

    >>> quote("a`b.c")
    '`a``b.c`'
    """
    return "`" + name.replace("`", "``") + "`"


def _settings(kind: str, lenient: bool, options: Mapping[str, str] | None) -> dict[str, str]:
    settings = {} if kind == "parquet" else {"mode": "PERMISSIVE" if lenient else "FAILFAST"}
    if kind == "csv":
        settings |= {
            "header": "true",
            "enforceSchema": "false",
            "columnPruning": "false",
        }  # so that every column is checked
    return settings | dict(options or {})


def _schema(
    spark: SparkSession, source: str, kind: str, lenient: bool, options: Mapping[str, str] | None
) -> StructType:
    """Return the columns of the files."""
    from pyspark.sql.types import StringType, StructField, StructType

    settings = {key: value for key, value in _settings(kind, True, options).items() if key != "enforceSchema"}
    schema = spark.read.options(**settings).format(kind).load(source).schema
    fields = [field for field in schema.fields if field.name != CORRUPT]
    return StructType([*fields, StructField(CORRUPT, StringType())] if lenient else fields)


def _null_corrupt_rows(frame: DataFrame) -> DataFrame:
    """Set all columns to null where a line could not be parsed."""
    from pyspark.sql import functions as F

    if CORRUPT not in frame.columns:
        return frame
    valid = F.col(CORRUPT).isNull()
    names: Sequence[str] = [name for name in frame.columns if name != CORRUPT]
    return frame.select(*(F.when(valid, F.col(quote(name))).alias(name) for name in names))


def _messages(spark: SparkSession, servers: str, schema: str | None, options: Mapping[str, str]) -> DataFrame:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    if schema is None:
        raise ValueError("schema must be given for Kafka (the columns of the JSON in each message), got None")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).options(**options)
    try:
        raw = reader.load()
    except AnalysisException as error:
        if "kafka" in str(error).lower() and "find" in str(error).lower():
            package = f"{KAFKA}:{spark.version}"
            raise ValueError(f"Spark must be started with the package of its Kafka source, {package}") from error
        raise
    parsed = F.from_json(F.col("value").cast("string"), schema).alias("event")
    named = [F.col(name).alias(f"kafka_{name}") for name in ("key", "partition", "offset")]
    return raw.select(parsed, *named).select("event.*", *(f"kafka_{name}" for name in ("key", "partition", "offset")))
