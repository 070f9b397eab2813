-- Who leads. KEYS: leader. ARGV: holder, its value (which begins with the holder), milliseconds.
-- Extends the lease of its holder, gives it to whoever asks when it is free; the value that holds now comes back.
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return value end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return ARGV[2]
