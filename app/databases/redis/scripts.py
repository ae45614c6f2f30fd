"""The scripts that a ticket database of Redis or Valkey runs. Each runs as a whole, with nothing between its steps.

All keys begin with `{tickets}:`. `sequences` is a hash of the last ticket of each sequence, by its name as it was made;
`bits` and `births` are hashes beside it. A birth is a random word with the last ticket that a script has seen: a field
that has gone back was made anew. `ring` is the hash of the ring row. Each book of the notebook is a hash of notes, see
`notes`, and a sorted set of their names.

A number of Lua is a double and holds 53 bits. So ids are strings here: HINCRBY adds to them, and they are compared by
length first.
"""

import hashlib

PREFIX = "{tickets}:"
BIRTH = 64
"""Characters of a birth's random word at most; the caller of a script gives it."""

_COMMON = """
local P = '{tickets}:'
local function above(a, b)
    if #a ~= #b then return #a > #b end
    return a > b
end
local function larger(a, b)
    if above(a, b) then return a end
    return b
end
local ENDS = {['32'] = '4294967295', ['53'] = '9007199254740991', ['64'] = '9223372036854775807'}
local function bits_of(name) return redis.call('HGET', P .. 'bits', name) or '64' end
local function is_whole(value)
    return string.match(value, '^%d+$') and (value == '0' or string.sub(value, 1, 1) ~= '0')
        and not above(value, ENDS['64'])
end
local function put(name, value, word)
    redis.call('HSET', P .. 'sequences', name, value)
    redis.call('HSET', P .. 'births', name, word .. ' ' .. value)
end
local function birth_of(name, value, fresh)
    local word, seen = string.match(redis.call('HGET', P .. 'births', name) or '', '^(%x+) (%d+)$')
    if fresh == '' or (word and not above(seen, value)) then return word or 'none' end
    redis.call('HSET', P .. 'births', name, fresh .. ' ' .. value)
    return fresh
end
"""

DRAW = (
    _COMMON
    + """
-- ARGV: a random word, offset, increment, and of each want: name, count, above, last, ceiling, whether it has drawn
local fresh, offset, increment, results = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), {}
local function draw(name, count, floor, last, ceiling, drawn)
    local value = redis.call('HGET', P .. 'sequences', name)
    if not value then return 'missing' end
    local ends = ENDS[bits_of(name)]
    if not ends or not is_whole(value) then return 'unusable' end
    if drawn == '1' and above(last, value) then return 'emptied' end
    local word, position = birth_of(name, value, fresh), larger(value, floor)
    if above(ceiling, ends) then ceiling = ends end
    local rest = 0
    for digit in string.gmatch(position, '%d') do rest = (rest * 10 + tonumber(digit)) % increment end
    local step = 1 + (offset - rest - 1) % increment + (tonumber(count) - 1) * increment
    redis.call('HSET', P .. 'sequences', name, position)
    local added = redis.pcall('HINCRBY', P .. 'sequences', name, string.format('%.0f', step))
    local reached = redis.call('HGET', P .. 'sequences', name)
    if (type(added) == 'table' and added.err) or above(reached, ceiling) then
        redis.call('HSET', P .. 'sequences', name, value)
        return 'exhausted'
    end
    put(name, reached, word)
    return reached
end
for i = 4, #ARGV, 6 do
    results[#results + 1] = draw(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
end
return results
"""
)
"""Draws for several sequences. Returns for each the last id, or a word that says why there is none."""

RAISE = (
    _COMMON
    + """
-- ARGV: a random word, and of each floor: name, number
local results = {}
for i = 2, #ARGV, 2 do
    local name, value = ARGV[i], redis.call('HGET', P .. 'sequences', ARGV[i])
    if not value then
        results[#results + 1] = 'missing'
    elseif not ENDS[bits_of(name)] or not is_whole(value) then
        results[#results + 1] = 'unusable'
    else
        local floor = ARGV[i + 1]
        if above(floor, ENDS[bits_of(name)]) then floor = ENDS[bits_of(name)] end
        local word = birth_of(name, value, ARGV[1])
        if above(floor, value) then put(name, floor, word) end
        results[#results + 1] = 'done'
    end
end
return results
"""
)
"""Raises counters. Returns a word for each."""

SEQUENCES = (
    _COMMON
    + """
-- ARGV: a random word, empty to change nothing, and the names in lower case; none: all
local wanted, found, all = {}, {}, redis.call('HGETALL', P .. 'sequences')
for i = 2, #ARGV do wanted[ARGV[i]] = true end
for i = 1, #all, 2 do
    local name, value = all[i], all[i + 1]
    if #ARGV == 1 or wanted[string.lower(name)] then
        local birth = is_whole(value) and birth_of(name, value, ARGV[1]) or ''
        found[#found + 1] = {name, bits_of(name), value, birth}
    end
end
return found
"""
)
"""Returns name, bits, last ticket and birth of the sequences."""

MAKE = (
    _COMMON
    + """
-- ARGV: a random word, name, bits, above
for _, name in ipairs(redis.call('HKEYS', P .. 'sequences')) do
    if string.lower(name) == string.lower(ARGV[2]) then return 0 end
end
local value = ARGV[4]
if above(value, ENDS[ARGV[3]]) then value = ENDS[ARGV[3]] end
redis.call('HSET', P .. 'bits', ARGV[2], ARGV[3])
put(ARGV[2], value, ARGV[1])
return 1
"""
)
"""Makes a sequence, unless one of this name is there."""

_NOTES = """
local P = '{tickets}:'
local function ring() return redis.call('HMGET', P .. 'ring', 'body', 'offset', 'stamp', 'text') end
local function set(book, name, note)
    if note == '' then
        redis.call('HDEL', P .. book, name)
        redis.call('ZREM', P .. book .. ':names', name)
    else
        redis.call('HSET', P .. book, name, note)
        redis.call('ZADD', P .. book .. ':names', 0, name)
    end
end
"""

OPEN = (
    _NOTES
    + """
-- ARGV: a random word for new data
if redis.call('EXISTS', P .. 'ring') == 0 then
    redis.call('HSET', P .. 'ring', 'body', ARGV[1], 'offset', '0', 'stamp', '', 'text', '')
end
return ring()
"""
)
"""Makes the ring row where there is none, and returns it."""

LOOK = (
    _NOTES
    + """
-- ARGV: server, its heartbeat, machine
set('heartbeats', ARGV[1], ARGV[2])
local floors, life = redis.call('HGET', P .. 'counts', 'floors'), redis.call('HGET', P .. 'lives', ARGV[3])
return {redis.call('TIME'), ring(), redis.call('HGETALL', P .. 'heartbeats'), life or '', floors or ''}
"""
)
"""Writes a heartbeat, and returns what a look reads."""

WRITE_RING = (
    _NOTES
    + """
-- ARGV: body, offset, stamp and text as they were read, and as they shall be
local there = ring()
for i = 1, 4 do
    if there[i] ~= ARGV[i] then return 0 end
end
redis.call('HSET', P .. 'ring', 'offset', ARGV[6], 'stamp', ARGV[7], 'text', ARGV[8])
return 1
"""
)
"""Replaces the ring row where it is what was read."""

WRITE = (
    _NOTES
    + """
-- ARGV: 1 where the stamp counts, the stamp, and of each write: book, name, old note, new note; none is empty
local fits, results = ARGV[1] == '0' or ring()[3] == ARGV[2], {}
for i = 3, #ARGV, 4 do
    local done = fits and (redis.call('HGET', P .. ARGV[i], ARGV[i + 1]) or '') == ARGV[i + 2]
    if done then set(ARGV[i], ARGV[i + 1], ARGV[i + 3]) end
    results[#results + 1] = done and 1 or 0
end
return results
"""
)
"""Does conditional writes, each by itself. Returns 1 for each that was done."""

MARK = (
    _NOTES
    + _COMMON.replace("local P = '{tickets}:'\n", "")
    + """
-- ARGV: the stamp, and of each mark: name, tenure, limit, issued, sure
local fits, results = ring()[3] == ARGV[1], {}
for i = 2, #ARGV, 5 do
    local row, result = redis.call('HGET', P .. 'marks', ARGV[i]), 'ring'
    if fits then
        local high, issued, sure, tenure, text = string.match(row or '', '^(%d+)\\n(%d+)\\n(%d)\\n([^\\n]*)\\n(.*)$')
        result = tenure == '=' .. ARGV[i + 1] and 'done' or 'tenure'
        if result == 'done' then
            high, issued = larger(high, ARGV[i + 2]), larger(issued, ARGV[i + 3])
            sure = larger(sure, ARGV[i + 4])
            set('marks', ARGV[i], table.concat({high, issued, sure, tenure, text}, '\\n'))
        end
    end
    results[#results + 1] = result
end
return results
"""
)
"""Raises marks. Returns a word for each."""


def digest(script: str) -> str:
    """Return the name by which EVALSHA calls a script."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
