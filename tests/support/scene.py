"""An agent's desk with everything around it made by hand: no thread, no network, a clock that moves when told."""

from rampmeter.config import Beliefs, Bounds, Names, job_settings
from rampmeter.core.clock import ManualClock
from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.pacer import Pacer
from rampmeter.desk import Desk
from rampmeter.layout import Claim
from rampmeter.report import SaveReport
from rampmeter.speech import Speech
from rampmeter.stepwatch import StepWatch
from rampmeter.throttle import FlowCounters, Throttle
from support.answers import grant, noted, plan

ENVIRONMENT = {"RAMPMETER_NOTICE_S": "30", "RAMPMETER_TENANT": "red"}
SETTINGS = job_settings(
    Names(job="run7", coordinator="http://h:1"), Beliefs(num_gpus=8), Bounds(), environment=ENVIRONMENT
)
REPORT = SaveReport(
    step=40,
    directory="step-00000040.a00001.00000000",
    num_bytes=1000,
    stage_s=0.1,
    stall_s=0.2,
    lead_s=0.3,
    write_s=4.0,
    counters=FlowCounters(done_bytes=990, throttled_s=3.0, blocked_s=0.5, busy_s=0.2),
    committed=True,
    reason=None,
)


class Scene:
    """A desk with everything around it made by hand."""

    def __init__(self, *, local=False, look=None):
        self.clock = ManualClock()
        self.events = []
        self.pokes = 0
        self.watch = StepWatch(self.clock)
        self.speech = Speech(SETTINGS, "a" * 32, Claim(number=1, nonce="b" * 32), self.watch)
        self.pacer = Pacer(
            LeaseClock(),
            now_s=self.clock.now(),
            draw=0.5,
            own_period_s=40.0,
            local=local,
            looks_first=look is not None,
        )
        self.desk = Desk(
            self.pacer, self.speech, clock=self.clock, on_event=self.events.append, poke=self.poke, look=look
        )

    def poke(self):
        self.pokes += 1

    def say(self, make_answer):
        """Word what is to be said, answer it; returns the request."""
        action = self.desk.advance()
        request, sent_s = self.desk.word(action)
        self.desk.answered(action, make_answer(request.seq), sent_s)
        return request

    def register(self):
        self.say(lambda seq: noted(seq, plan=plan()))

    def arm(self):
        self.register()
        self.clock.advance(60.0)
        self.say(grant)

    def begin_snapshot(self):
        """As training does at its next step; the writer's throttle is `throttle`."""
        self.throttle = Throttle(clock=self.clock)
        return self.desk.begin_snapshot(self.throttle)

    def flush(self, rate=9_000):
        self.arm()
        self.begin_snapshot()
        self.clock.advance(0.25)
        self.desk.first_byte(5000)
        self.say(lambda seq: grant(seq, rate=rate))
        return self.throttle

    def end(self, report=REPORT):
        self.clock.advance(4.0)
        self.desk.save_ended(report, lambda _: 50.0)
