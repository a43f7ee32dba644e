"""What `emberline doctor` asks of this room: whether each source that is in use answers.

Promises a deadline, and that none of it is needed: endpoints serve without numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.db import DatabaseError

from console.system.preflight import Verdict
from dashboards.boards.results.board import fault_message
from dashboards.prometheus.http.client import Question
from dashboards.prometheus.sources import selectors


def ask() -> Iterator[Verdict]:
    try:
        found = selectors.asked()
    except DatabaseError:
        return  # said already, by who asks the database
    question = {"up": Question("count (up)", int(time.time()))}
    begun = [(one, one.asker().begin(question)) for one in found]
    for one, answers in begun:
        answer = answers()["up"]
        subject = f"metrics source {one.name}"
        if answer.fault is not None:
            message = fault_message(answer.fault)
            yield Verdict(subject, False, message.text, message.fix, needed=False)
            continue
        targets = int(sum(series.latest or 0 for series in answer.series))
        remedy = "Let it ask the console what to scrape: the configuration is on its page."
        yield Verdict(subject, targets > 0, f"scrapes {targets} targets.", remedy, needed=False)
