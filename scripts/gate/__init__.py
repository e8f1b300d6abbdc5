"""The gate: what `make test`, `make test-long` and `make test-release` run.

Three processes share the work, so that a run that is killed leaves nothing:

    scripts/test      in the foreground; passes the end of its own life on through a pipe
      keeper          in a session of its own, outside the namespaces; removes what is left
        init          first process of the run's PID namespace; with it, all processes end
          runner      lints, builds and runs the tests

`keeper` explains who ends whom, `record` what the next run knows of a run that was killed, and
`remains` what is removed. `runner` is the order of the steps. The rest is one noun each.
"""
