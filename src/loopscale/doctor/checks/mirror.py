"""The copy of the records that readers use."""

from collections.abc import Iterator
from functools import partial

from typing_extensions import override

from loopscale.doctor.check import Check, Finding, Patient
from loopscale.records import mirror


class Mirror(Check):
    """The files of the mirror pass their checksums, and agree with the records."""

    name = "mirror"
    stage = "copies"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.store.read_only:
            return
        copy = mirror.Mirror(patient.store)
        if damage := copy.damage:
            more = f" and {len(damage) - 1:,} more files" if len(damage) > 1 else ""
            what = f"{damage[0]}{more} of the mirror differ from the last reading"
            remedy = "nothing to do: the next reader makes the mirror anew"
            yield Finding("warning", str(copy.folder), what, remedy, partial(_make_anew, copy))


def _make_anew(copy: mirror.Mirror) -> str:
    copy.remove()
    copy.sync()
    return "made anew from the records"
