-- Keep one batch of one pool, or say why not. All or nothing: checks come before writes.
-- The same verdicts as must_land in protocol.py.
-- KEYS: head, records, log, start, start-records.
-- ARGV: epoch, number, writer; boot_id, now_s, grace_s, grace_until_s, run_id, meta; log cap, opening,
-- number of decisions, the decisions as one element NUMBER:PACKED; sizes of the changed records' keys and values as
-- "KEY:VALUE ", these one after the other as one element; then deleted keys.
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
if stored_number > 0 and stored[3] ~= writer and ARGV[11] == '' then return {'fenced', stored_epoch, stored_number} end

redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'number', ARGV[2], 'writer', ARGV[3], 'boot_id', ARGV[4],
  'now_s', ARGV[5], 'grace_s', ARGV[6], 'grace_until_s', ARGV[7], 'run_id', ARGV[8], 'meta', ARGV[9])
local at = 1
for key_size, value_size in string.gmatch(ARGV[14], '(%d+):(%d+) ') do
  local value_at = at + tonumber(key_size)
  local next_at = value_at + tonumber(value_size)
  redis.call('HSET', KEYS[2], string.sub(ARGV[15], at, value_at - 1), string.sub(ARGV[15], value_at, next_at - 1))
  at = next_at
end
for index = 16, #ARGV do
  redis.call('HDEL', KEYS[2], ARGV[index])
end
local decisions = tonumber(ARGV[12])
if decisions > 0 then
  redis.call('RPUSH', KEYS[3], ARGV[13])
  redis.call('HINCRBY', KEYS[1], 'rows', decisions)
  local kept = redis.call('HINCRBY', KEYS[1], 'log_rows', decisions)
  while true do  -- an element of the first release has no number and counts for nothing
    local oldest = tonumber(string.match(redis.call('LINDEX', KEYS[3], 0), '^%d+') or 0)
    if kept - oldest < tonumber(ARGV[10]) then break end
    redis.call('LPOP', KEYS[3])
    kept = redis.call('HINCRBY', KEYS[1], 'log_rows', -oldest)
  end
end
if ARGV[11] ~= '' then
  redis.call('DEL', KEYS[5])
  redis.call('COPY', KEYS[2], KEYS[5])
  local rows = redis.call('HGET', KEYS[1], 'rows') or 0
  redis.call('HSET', KEYS[4], 'epoch', ARGV[1], 'opening', ARGV[11], 'meta', ARGV[9], 'rows', rows)
end
return {'kept', epoch, number}
