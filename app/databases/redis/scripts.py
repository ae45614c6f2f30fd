"""The script that a ticket database of Redis or Valkey runs. A call runs as a whole, with nothing between its steps.

All keys begin with `{tickets}:`. `sequences` is a hash of the last ticket of each sequence, by its name as it was made;
`bits` and `births` are hashes beside it. A birth is a random word with the last ticket that a call has seen: a field
that has gone back was made anew. `ring` is the hash of the ring row. Each book of the notebook is a hash of notes, each
as a JSON array, and a sorted set of their names.

A number of Lua is a double and holds 53 bits. So ids are strings here: HINCRBY adds to them, and they are compared by
length first.
"""

import hashlib

PREFIX = "{tickets}:"
SCRIPT = r"""
local P, SEQUENCES, call, results = '{tickets}:', '{tickets}:sequences', redis.call, {}
local ENDS = {['32'] = '4294967295', ['53'] = '9007199254740991', ['64'] = '9223372036854775807'}

local function above(a, b)
    if #a ~= #b then return #a > #b end
    return a > b
end
local function larger(a, b) return above(a, b) and a or b end
local function smaller(a, b) return above(a, b) and b or a end

-- Returns the last ticket, the bits and the birth of a sequence; or nil and what is wrong with it.
-- fresh: the birth of one that is new or has gone back; empty: nothing is written
local function counter(name, fresh)
    local value, bits = call('HGET', SEQUENCES, name), call('HGET', P .. 'bits', name) or '64'
    if not value then return nil, 'missing' end
    if not ENDS[bits] or not string.match(value, '^%d+$') or string.match(value, '^0.') or above(value, ENDS['64']) then
        return nil, 'unusable'
    end
    local word, seen = string.match(call('HGET', P .. 'births', name) or '', '^(%x+) (%d+)$')
    if fresh ~= '' and (not word or above(seen, value)) then
        word = fresh
        call('HSET', P .. 'births', name, word .. ' ' .. value)
    end
    return value, bits, word or 'none'
end

local function put(name, value, word)
    call('HSET', SEQUENCES, name, value)
    call('HSET', P .. 'births', name, word .. ' ' .. value)
end

local function ring() return call('HMGET', P .. 'ring', 'body', 'offset', 'stamp', 'text') end

local function set(book, name, note)
    if note == '' then
        call('HDEL', P .. book, name)
        call('ZREM', P .. book .. ':names', name)
    else
        call('HSET', P .. book, name, note)
        call('ZADD', P .. book .. ':names', 0, name)
    end
    return 1
end

-- Calls a function with `size` arguments at a time, from the argument `first` on, and returns the results
local function each(first, size, act)
    for i = first, #ARGV, size do results[#results + 1] = act(unpack(ARGV, i, i + size - 1)) end
    return results
end

local F = {}

-- a random word, offset, increment; of each want: name, count, above, last, ceiling, whether it has drawn, birth.
-- Returns for each the last id, or a word that says why there is none
function F.draw()
    local offset, increment = ARGV[3], ARGV[4]
    return each(5, 7, function(name, count, floor, last, ceiling, has_drawn, birth)
        local value, bits, word = counter(name, ARGV[2])
        if not value then return bits end
        if has_drawn == '1' and above(last, value) or birth ~= '' and birth ~= word then return 'emptied' end
        local position, rest = larger(value, floor), 0
        for digit in string.gmatch(position, '%d') do rest = (rest * 10 + digit) % increment end
        local step = 1 + (offset - rest - 1) % increment + (count - 1) * increment
        call('HSET', SEQUENCES, name, position)
        local added = redis.pcall('HINCRBY', SEQUENCES, name, string.format('%.0f', step))
        local reached = call('HGET', SEQUENCES, name)
        local fits = type(added) == 'number' and not above(reached, smaller(ceiling, ENDS[bits]))
        put(name, fits and reached or value, word)
        return fits and reached or 'exhausted'
    end)
end

-- a random word; of each floor: name, number. Returns a word for each
function F.raise()
    return each(3, 2, function(name, floor)
        local value, bits, word = counter(name, ARGV[2])
        if value then put(name, larger(value, smaller(floor, ENDS[bits])), word) end
        return value and 'done' or bits
    end)
end

-- a random word, empty to write nothing, and names in lower case, none for all. Returns name, bits, last ticket, birth
function F.sequences()
    local wanted = {}
    for i = 3, #ARGV do wanted[ARGV[i]] = true end
    for _, name in ipairs(call('HKEYS', SEQUENCES)) do
        if #ARGV == 2 or wanted[string.lower(name)] then
            local value, bits, word = counter(name, ARGV[2])
            results[#results + 1] = {name, bits, value or '', word or ''}
        end
    end
    return results
end

-- a random word, name, bits, above
function F.make()
    for _, name in ipairs(call('HKEYS', SEQUENCES)) do
        if string.lower(name) == string.lower(ARGV[3]) then return 0 end
    end
    call('HSET', P .. 'bits', ARGV[3], ARGV[4])
    put(ARGV[3], smaller(ARGV[5], ENDS[ARGV[4]]), ARGV[2])
    return 1
end

-- a random word for new data. Makes the ring row where there is none, and returns it
function F.open()
    if call('EXISTS', P .. 'ring') == 0 then
        call('HSET', P .. 'ring', 'body', ARGV[2], 'offset', '0', 'stamp', '', 'text', '')
    end
    return ring()
end

-- server, its heartbeat, machine. Returns what a look reads
function F.look()
    set('heartbeats', ARGV[2], ARGV[3])
    local floors, life = call('HGET', P .. 'counts', 'floors'), call('HGET', P .. 'lives', ARGV[4])
    return {ring(), call('HGETALL', P .. 'heartbeats'), life or '', floors or ''}
end

-- body, offset, stamp and text as they were read, and as they shall be
function F.write_ring()
    for i, value in ipairs(ring()) do
        if value ~= ARGV[i + 1] then return 0 end
    end
    call('HSET', P .. 'ring', 'offset', ARGV[7], 'stamp', ARGV[8], 'text', ARGV[9])
    return 1
end

-- 1 where the stamp counts, the stamp; of each write: book, name, old note, new note. Returns 1 for each that was done
function F.write()
    local fits = ARGV[2] == '0' or ring()[3] == ARGV[3]
    return each(4, 4, function(book, name, old, new)
        return fits and (call('HGET', P .. book, name) or '') == old and set(book, name, new) or 0
    end)
end

-- the stamp; of each mark: name, tenure as JSON, limit, issued, sure. Returns a word for each
function F.mark()
    local fits = ring()[3] == ARGV[2]
    return each(3, 5, function(name, tenure, limit, issued, sure)
        if not fits then return 'ring' end
        local row = call('HGET', P .. 'marks', name) or ''
        local high, given, rest = string.match(row, '^%[(%d+), (%d+), (.*)$')
        if not rest or string.sub(rest, 1, #tenure + 1) ~= tenure .. ',' then return 'tenure' end
        rest = string.sub(rest, #tenure + 1)
        if sure == '1' then rest = string.gsub(rest, '^, false', ', true') end
        set('marks', name, '[' .. larger(high, limit) .. ', ' .. larger(given, issued) .. ', ' .. tenure .. rest)
        return 'done'
    end)
end

return F[ARGV[1]]()
"""
"""The first argument names the function to run. A comment before each function lists the further arguments."""
DIGEST = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
"""The name by which EVALSHA calls the script."""
