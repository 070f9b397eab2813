-- Lead no more. KEYS: leader. ARGV: holder. The lease of somebody else stays.
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
