"""Files and topics as Spark reads them: for the command line, and for whoever wants the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FILES = ("parquet", "csv", "json")
CORRUPT = "_corrupt_record"  # where Spark puts a line that it cannot read
ENDINGS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"  # its package, to which the version of Spark is added


def kind_of(place: str) -> str:
    """The kind of files at a place, by their endings.

    >>> kind_of("readings/2026.csv.gz"), kind_of("s3a://bucket/readings.parquet")
    ('csv', 'parquet')
    """
    here = Path(place)
    names = [here.name] if not here.is_dir() else [file.name for file in sorted(here.rglob("*")) if file.is_file()]
    kinds = {ENDINGS[suffix] for name in names for suffix in Path(name).suffixes if suffix in ENDINGS}
    if len(kinds) != 1:
        found = f"those of {' and '.join(sorted(kinds))}" if kinds else "none of them"
        raise ValueError(f"{place}: the kind of files must be told by their endings, or be named, got {found}")
    return kinds.pop()


def table(
    spark: SparkSession, place: str, kind: str, *, lenient: bool = False, options: Mapping[str, str] | None = None
) -> DataFrame:
    """A frame of files: Parquet, CSV with a header (all text: the door reads the numbers), or JSON lines.

    A line that is no record fails the job; where ``lenient`` it becomes a row of nulls, to be reported as bad.
    """
    reader = spark.read.options(**_settings(kind, lenient, options))
    if kind == "parquet":
        return reader.parquet(place)
    return _nulled(reader.schema(_layout(spark, place, kind, lenient, options)).format(kind).load(place))


def stream(
    spark: SparkSession,
    place: str,
    kind: str,
    *,
    schema: str | None = None,
    lenient: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The same as a stream: files that appear in a folder, or the messages of a Kafka topic (JSON of that schema).

    The schema (``device string, seq long, reading double``) is that of the files that are there already, if none is
    given. Of Kafka, ``place`` are the servers, and the options name the topic: ``subscribe``; beside the columns of the
    schema there are ``kafka_key``, ``kafka_partition`` and ``kafka_offset``.
    """
    if kind == "kafka":
        return _messages(spark, place, schema, options or {})
    reader = spark.readStream.options(**_settings(kind, lenient, options)).format(kind)
    if schema is not None:
        extra = f", {CORRUPT} string" if lenient and kind != "parquet" else ""
        return _nulled(reader.schema(schema + extra).load(place))
    if kind == "parquet":
        return reader.schema(spark.read.parquet(place).schema).load(place)
    return _nulled(reader.schema(_layout(spark, place, kind, lenient, options)).load(place))


def ordered(frame: DataFrame, order: str, kind: str) -> DataFrame:
    """The same with the order column read as that kind, where it is text, as in CSV; what is none becomes null."""
    from pyspark.sql import functions as F

    if dict(frame.dtypes).get(order) != "string":
        return frame
    name = quoted(order)
    return frame.withColumn(order, F.expr(f"try_cast({name} AS {kind})"))


def quoted(name: str) -> str:
    """A column's name within an expression.

    >>> quoted("a`b.c")
    '`a``b.c`'
    """
    return "`" + name.replace("`", "``") + "`"


def _settings(kind: str, lenient: bool, options: Mapping[str, str] | None) -> dict[str, str]:
    settings = {} if kind == "parquet" else {"mode": "PERMISSIVE" if lenient else "FAILFAST"}
    if kind == "csv":
        settings |= {"header": "true", "enforceSchema": "false", "columnPruning": "false"}  # so that all is checked
    return settings | dict(options or {})


def _layout(spark: SparkSession, place: str, kind: str, lenient: bool, options: Mapping[str, str] | None) -> StructType:
    """The columns that the files have."""
    from pyspark.sql.types import StringType, StructField, StructType

    settings = {key: value for key, value in _settings(kind, True, options).items() if key != "enforceSchema"}
    found = spark.read.options(**settings).format(kind).load(place).schema
    fields = [field for field in found.fields if field.name != CORRUPT]
    return StructType([*fields, StructField(CORRUPT, StringType())] if lenient else fields)


def _nulled(frame: DataFrame) -> DataFrame:
    """Where a line could not be read, nothing of it counts."""
    from pyspark.sql import functions as F

    if CORRUPT not in frame.columns:
        return frame
    whole = F.col(CORRUPT).isNull()
    names: Sequence[str] = [name for name in frame.columns if name != CORRUPT]
    return frame.select(*(F.when(whole, F.col(quoted(name))).alias(name) for name in names))


def _messages(spark: SparkSession, servers: str, schema: str | None, options: Mapping[str, str]) -> DataFrame:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    if schema is None:
        raise ValueError("schema must be given for Kafka: the columns of the JSON in each message, got None")
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).options(**options)
    try:
        raw = source.load()
    except AnalysisException as error:
        if "kafka" in str(error).lower() and "find" in str(error).lower():
            package = f"{KAFKA}:{spark.version}"
            raise ValueError(f"Spark must be started with the package of its Kafka source, {package}") from error
        raise
    parsed = F.from_json(F.col("value").cast("string"), schema).alias("event")
    named = [F.col(name).alias(f"kafka_{name}") for name in ("key", "partition", "offset")]
    return raw.select(parsed, *named).select("event.*", *(f"kafka_{name}" for name in ("key", "partition", "offset")))
