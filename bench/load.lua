-- Requests for wrk, and what it found as one line of JSON: wrk ... URL -- MODE
-- MODE: alike (the URL's request), traced (each with another traceparent), random (one of 1,000 sequences)

local function traced()
  local beginning, number = wrk.format("GET"):sub(1, -3), 0
  return function()
    number = number + 1
    return string.format("%straceparent: 00-%032x-%016x-01\r\n\r\n", beginning, number, number)
  end
end

local function random()
  local requests = {}
  math.randomseed(os.time())
  for number = 0, 999 do
    requests[number] = wrk.format("GET", string.format("/ticket/s%03d", number))
  end
  return function() return requests[math.random(0, 999)] end
end

-- Without a function of this name wrk sends the URL's request by itself, and needs less time for it.
function init(args)
  request = ({traced = traced, random = random, alike = function() end})[args[1]]()
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('\nRESULT {"requests": %d, "microseconds": %d, "bad": %d, "p50": %d, "p99": %d}\n',
    summary.requests, summary.duration, errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
