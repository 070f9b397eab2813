-- Keep one batch of one pool, or say why not. All or nothing: checks come before writes.
-- The same verdicts as must_land in protocol.py.
-- KEYS: head, records, log, start, start-records.
-- ARGV: epoch, number, writer, log cap, number of head values, of changed, of deleted keys, of decisions, opening;
-- then head values, changed and deleted keys, and the decisions as one element NUMBER:PACKED.
local epoch, number, writer = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'number', 'writer')
local stored_epoch, stored_number = tonumber(stored[1] or 0), tonumber(stored[2] or 0)
local ours = stored_epoch == epoch and stored[3] == writer
if stored_epoch > epoch then return {'fenced', stored_epoch, stored_number} end
if ours and stored_number == number then return {'kept', stored_epoch, stored_number} end
if stored_number >= number or (stored_epoch == epoch and not ours) then
  return {'fenced', stored_epoch, stored_number}
end
if stored_number < number - 1 then return {'lost', stored_epoch, stored_number} end

local at = 10
for _ = 1, tonumber(ARGV[5]) do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
  at = at + 2
end
for _ = 1, tonumber(ARGV[6]) do
  redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1])
  at = at + 2
end
for _ = 1, tonumber(ARGV[7]) do
  redis.call('HDEL', KEYS[2], ARGV[at])
  at = at + 1
end
local decisions = tonumber(ARGV[8])
if decisions > 0 then
  redis.call('RPUSH', KEYS[3], ARGV[at])
  redis.call('HINCRBY', KEYS[1], 'rows', decisions)
  local kept = redis.call('HINCRBY', KEYS[1], 'log_rows', decisions)
  while true do  -- an element of the first release has no number and counts for nothing
    local oldest = tonumber(string.match(redis.call('LINDEX', KEYS[3], 0), '^%d+') or 0)
    if kept - oldest < tonumber(ARGV[4]) then break end
    redis.call('LPOP', KEYS[3])
    kept = redis.call('HINCRBY', KEYS[1], 'log_rows', -oldest)
  end
end
if ARGV[9] ~= '' then
  redis.call('DEL', KEYS[5])
  redis.call('COPY', KEYS[2], KEYS[5])
  local rows = redis.call('HGET', KEYS[1], 'rows') or 0
  local meta = redis.call('HGET', KEYS[1], 'meta')
  redis.call('HSET', KEYS[4], 'epoch', ARGV[1], 'opening', ARGV[9], 'meta', meta, 'rows', rows)
end
return {'kept', epoch, number}
