"""`rampmeter plan`: what the interval should be, what it costs and what would help, from figures that the user gives.

`options` reads the call, `job` and `money` hold its figures, `answer` is the central result; `strategies`, `spot`,
`sharing`, `retention`, `changes` and `sweep` each answer one more question; `report` and `as_json` say it. Everything
is a model: nothing here measures, talks to a coordinator or decides anything for a running job.
"""
