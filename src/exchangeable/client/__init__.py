"""A client for the monitoring server: it numbers, batches and retries, so that nothing is lost or counted twice.

>>> client = Client("http://127.0.0.1:8000", token="ex_...")  # doctest: +SKIP
>>> client.create("pump", {"alarm": {"kind": "ville", "alpha": 0.05}})  # doctest: +SKIP
>>> with client.stream("pump") as stream:  # doctest: +SKIP
...     for reading in readings:
...         stream.send(reading)
>>> stream.state["alarm"]  # doctest: +SKIP
False
"""

from exchangeable._extras import check, needed

check("client", "the client")
with needed("client", "the client"):
    from exchangeable.client.client import Client
    from exchangeable.client.errors import ClientError
    from exchangeable.client.stream import Stream
    from exchangeable.client.transport import Event

__all__ = ["Client", "ClientError", "Event", "Stream"]
