-- Requests for wrk, and what it found as one line of JSON: wrk ... URL -- MODE
-- MODE: alike (the URL's request), traced (each with another traceparent), random (one of 1,000 sequences)
local requests = {}
local mode, beginning
local number = 0

function init(args)
  mode = args[1]
  math.randomseed(os.time())
  beginning = wrk.format("GET"):sub(1, -3)
  requests[1] = wrk.format("GET")
  if mode == "random" then
    for sequence = 1, 1000 do
      requests[sequence] = wrk.format("GET", string.format("/ticket/s%03d", sequence - 1))
    end
  end
end

function request()
  if mode == "random" then return requests[math.random(#requests)] end
  if mode == "alike" then return requests[1] end
  number = number + 1
  return string.format("%straceparent: 00-%032x-%016x-01\r\n\r\n", beginning, number, number)
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('\nRESULT {"requests": %d, "microseconds": %d, "bad": %d, "p50": %d, "p99": %d}\n',
    summary.requests, summary.duration, errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
