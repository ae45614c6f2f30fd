-- Requests of which no two are alike, as where a load balancer numbers them: wrk ... URL
local here = debug.getinfo(1, "S").source:match("^@(.*)wrk_unlike.lua$") or ""
dofile(here .. "wrk.lua")

local number = 0
local request_line

function init(args)
  request_line = wrk.format("GET"):sub(1, -3)
end

function request()
  number = number + 1
  return string.format("%sX-Request-ID: %032x\r\n\r\n", request_line, number)
end
