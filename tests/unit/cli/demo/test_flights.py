"""The demo's data file is read as it is: NA is null, numbers are numbers, totals add up."""

import zipfile
from pathlib import Path

from ottla.cli.demo.flights import Totals, data_path, read_flights

ROWS = """\
year,month,day,dep_time,dep_delay,carrier,flight,tailnum,origin,dest,distance,hour,time_hour
2013,1,1,517,2,UA,1545,N14228,EWR,IAH,1400,5,2013-01-01T10:00:00Z
2013,9,30,NA,NA,MQ,3531,NA,LGA,RDU,431,8,2013-09-30T12:00:00Z
2013,1,2,600,-7,UA,12,N1,EWR,ORD,700,6,2013-01-02T11:00:00Z
"""


def archive(directory: Path) -> Path:
    path = directory / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("flights.csv", ROWS)
    return path


def test_values_have_their_types(tmp_path: Path) -> None:
    first, second, _third = read_flights(archive(tmp_path))
    assert (first["carrier"], first["month"], first["distance"]) == ("UA", 1, 1400)
    assert first["flight"] == 1545
    assert second["dep_time"] is None
    assert second["tailnum"] is None
    assert second["time_hour"] == "2013-09-30T12:00:00Z"


def test_totals_add_up(tmp_path: Path) -> None:
    totals = Totals()
    for flight in read_flights(archive(tmp_path)):
        totals.add(flight)
    assert totals.flights == {("UA", 1): 2, ("MQ", 9): 1}
    assert totals.miles == {("UA", 1): 2100, ("MQ", 9): 431}
    assert totals.delays == {5: (2, 1), 6: (-7, 1)}, "a flight that never left has no delay"
    assert totals.count == 3


def test_the_real_file_is_there() -> None:
    first = next(read_flights(data_path()))
    assert {"year", "month", "carrier", "flight", "distance"} <= set(first)
