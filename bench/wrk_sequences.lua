-- Tickets of many sequences at random: wrk ... URL -- HOW_MANY QUERY
local here = debug.getinfo(1, "S").source:match("^@(.*)wrk_sequences.lua$") or ""
dofile(here .. "wrk.lua")

local requests = {}

function init(args)
  math.randomseed(os.time())
  for number = 1, tonumber(args[1]) do
    requests[number] = wrk.format("GET", string.format("/ticket/s%04d%s", number - 1, args[2] or ""))
  end
end

function request()
  return requests[math.random(#requests)]
end
