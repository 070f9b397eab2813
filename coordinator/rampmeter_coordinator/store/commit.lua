-- Keep one batch of one pool, or say why not. KEYS: head, records, log. All or nothing: checks come before writes.
-- The same verdicts as must_land in protocol.py.
-- ARGV: epoch, number, writer, log cap, number of head values, of changed, of deleted keys, of log rows; then those.
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

local at = 9
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
for _ = 1, tonumber(ARGV[8]) do
  redis.call('RPUSH', KEYS[3], ARGV[at])
  at = at + 1
end
redis.call('LTRIM', KEYS[3], -tonumber(ARGV[4]), -1)
return {'kept', epoch, number}
