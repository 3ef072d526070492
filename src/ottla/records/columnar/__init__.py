"""Whole record batches to and from Arrow, vectorised with numpy and pyarrow.

For Spark and bulk jobs only: nothing that a broker loads imports this package. Both directions
keep the rules of the plain modules `record` and `builder`, and the tests hold them to it.
"""

from ottla.records.columnar.decoder import COLUMNS, HEADERS_TYPE, decode, schema_of
from ottla.records.columnar.encoder import encode

__all__ = ["COLUMNS", "HEADERS_TYPE", "decode", "encode", "schema_of"]
