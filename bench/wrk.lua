-- What wrk found, as one line of JSON after its own report.
function done(summary, latency, requests)
  local failed = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  io.write(string.format(
    'RESULT {"requests": %d, "microseconds": %d, "status": %d, "failed": %d, "p50": %d, "p99": %d}\n',
    summary.requests, summary.duration, summary.errors.status, failed,
    latency:percentile(50), latency:percentile(99)))
end
