-- Checks the fence of one resource and acts under it, in one step: Redis runs one script at a time.
--
-- KEYS[1]  the fence: a hash of epoch, owner, and the sequence and write id of the latest write
-- KEYS[2]  the data: a string
-- ARGV     what to do, epoch, owner, and for a write or deletion its sequence and write id, and for
--          a write the data
--
-- Epochs and sequences are texts of 19 digits and are compared as texts. As numbers they would be
-- doubles here, and above 2^53 two epochs would be one.
--
-- The answer is whether anything was changed, what the fence was before (from which the caller works
-- out what to say, by the same rule as every other store), and after a seal the data.

local action, epoch, owner, sequence, write_id, data = unpack(ARGV)

local expiry = redis.call('PTTL', KEYS[1])
if expiry >= 0 then
  return {'expiring'}
end
local before = redis.call('HMGET', KEYS[1], 'epoch', 'owner', 'sequence', 'write_id')
local exists = expiry == -1
if exists and not (before[1] and #before[1] == 19 and before[2]) then
  return {'damaged'}
end

local function answer(outcome, found)
  return {outcome, before[1], before[2], before[3], before[4], found}
end

-- Lets what follows be done also when the memory is full. Redis looks only at the first command of a
-- script that may write. This one removes nothing, so it may be refused like any other, but not for want
-- of memory; and what follows replaces what is there by as much.
local function even_if_full()
  redis.call('HDEL', KEYS[1], '')
end

-- Writes what is there already, so that a WAIT after it waits for the replicas to have it: the
-- connection that asked for it the first time may be gone.
local function again()
  even_if_full()
  redis.call('HSET', KEYS[1], 'owner', owner)
end

if action == 'seal' then
  if not exists or before[1] < epoch then
    if exists then
      even_if_full()
    end
    redis.call('HSET', KEYS[1], 'epoch', epoch, 'owner', owner)
    redis.call('HDEL', KEYS[1], 'sequence', 'write_id')
    return answer('changed', redis.call('GET', KEYS[2]))
  end
  if before[1] == epoch and before[2] == owner then
    again()
    return answer('kept', redis.call('GET', KEYS[2]))
  end
  return answer('kept', false)
end

if not (exists and before[1] == epoch and before[2] == owner) then
  return answer('kept', false)
end
if before[3] and before[3] >= sequence then
  if before[3] == sequence and before[4] == write_id then
    again()
  end
  return answer('kept', false)
end
-- First the command that may be refused for want of memory or of permission, so that a refusal
-- leaves everything as it was. A deletion is none: it must be possible when the memory is full.
if action == 'delete' then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], data)
end
redis.call('HSET', KEYS[1], 'sequence', sequence, 'write_id', write_id)
return answer('changed', false)
