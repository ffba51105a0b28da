-- Games in Lua 5.4 that entity_env plays, trains and records. README.md has an example.
local entity_env = {}
local MAGIC, ENTRY = "ENE1", "<c4I4I8"
local HELLO, START, READY, RESET, ACT, STEP, ERROR, CLOSE = 1, 2, 3, 4, 5, 6, 7, 8
local TERMINATED, TRUNCATED, FAILED, NEW = 1, 2, 4, 8

local Random = {}
Random.__index = Random
-- SplitMix64: equal seeds give equal numbers in every language.
function entity_env.random(seed) return setmetatable({state = seed}, Random) end

function Random:draw()
  local z = self.state + 0x9E3779B97F4A7C15
  self.state = z
  z = (z ~ (z >> 30)) * 0xBF58476D1CE4E5B9
  z = (z ~ (z >> 27)) * 0x94D049BB133111EB
  return z ~ (z >> 31)
end

-- An integer from 0 to limit - 1.
function Random:below(limit) return ((self:draw() >> 32) * limit) >> 32 end

-- The text with "?" for bytes that are not UTF-8.
local function as_utf8(text)
  local parts, from = {}, 1
  while true do
    local length, wrong = utf8.len(text, from)
    if length then return table.concat(parts) .. text:sub(from) end
    parts[#parts + 1] = text:sub(from, wrong - 1) .. "?"
    from = wrong + 1
  end
end

-- JSON; no class of characters and no decimal point depends on the locale.
local function encode(value)
  if type(value) == "string" then
    return '"' .. as_utf8(value):gsub('[\0-\31"\\\127]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
  end
  if math.type(value) == "float" and value - value == 0 then
    local text = ("%.17g"):format(value):gsub("[^%-+0-9e]+", ".")
    return text:find("[.e]") and text or text .. ".0"
  end
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  if #value > 0 or next(value) == nil and not value.is_object then
    for _, item in ipairs(value) do parts[#parts + 1] = encode(item) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for key, item in pairs(value) do
    if key ~= "is_object" then parts[#parts + 1] = encode(key) .. ":" .. encode(item) end
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- The settings of a START: an object of booleans, numbers and plain texts.
local function settings_of(json, defaults)
  local found, values = json:match('"settings"%s*:%s*(%b{})') or "{}", {}
  for name, default in pairs(defaults) do
    local text = found:match('"' .. name .. '"%s*:%s*("[^"]*")') or found:match('"' .. name .. '"%s*:%s*([^,}%s]+)')
    if text == nil then values[name] = default elseif type(default) == "boolean" then values[name] = text == "true"
    else values[name] = math.tointeger(tonumber(text)) or tonumber(text) or text:sub(2, -2) end
  end
  return values
end

local function padded(text, fill) return text .. fill:rep(-#text % 8) end
local function send(kind, payload) io.stdout:write(ENTRY:pack(MAGIC, kind, #payload), payload):flush() end

local function receive()
  local header = io.stdin:read(16)
  if header == nil then os.exit(0) elseif #header < 16 then os.exit(1) end -- the host is gone
  local magic, kind, size = ENTRY:unpack(header)
  if magic ~= MAGIC or size > 1 << 28 then error("the host sent something else than a message") end
  local payload = size == 0 and "" or io.stdin:read(size)
  if payload == nil or #payload < size then os.exit(1) end
  return kind, payload
end

local function check(game, obs)
  for name in pairs(obs or {}) do
    if not (game.entities[name] or name == "score" or name == "mask") then error("the game has no entities " .. name, 3) end
  end
  for name in pairs(game.parts and obs and obs.mask or {}) do
    if not game.is_part[name] then error("the decision has no part " .. name .. ", which has a mask", 3) end
  end
  for k, action in ipairs(game.parts and obs and obs.mask and game.actions or {}) do
    local mask, before = obs.mask[action.part], game.actions[k - 1]
    if mask and type(mask[1]) == "table" and #mask ~= (before and #before.labels or 0) then
      local wanted = before and #before.labels .. " lists, one for each choice of " .. before.part or "flags instead of lists"
      error(("the mask of %s must have %s; it has %d"):format(action.part, wanted, #mask), 3)
    end
  end
end

-- An observation: {score = 0, Head = {{1, 2}}, Food = {...}}, the features of each entity in order.
-- `mask` allows only some choices: {true, false, ...}; of a decision in several parts, by part: {turn =
-- {true, false}}. A mask with a list for each choice of the part before depends on that choice.
local Agent = {}
Agent.__index = Agent
-- Asks for the action of the game; returns a label, or a table with a label for each part; nil if the game
-- must return.
function Agent:act(obs)
  check(self.copy.game, obs)
  self.obs, self.waits, self.is_playing = obs, true, true
  return coroutine.yield()
end

-- Ends the agent's episode; `is_truncated` if the rules did not end it.
function Agent:game_over(obs, is_truncated)
  check(self.copy.game, obs)
  local flags = (is_truncated and TRUNCATED or TERMINATED) + (self.copy.is_new and NEW or 0)
  table.insert(self.copy.ends, {agent = self.index, flags = flags, obs = obs, asks = is_truncated})
  self.is_playing = false
end

-- What a game gave to `error`, as text: of a table without a text of its own, its fields in order.
local function message_of(problem)
  local ok, text = pcall(function()
    local meta = getmetatable(problem)
    if type(problem) ~= "table" or type(meta) == "table" and meta.__tostring then return tostring(problem) end
    local fields = {}
    for key, value in next, problem do fields[#fields + 1] = ("%s = %s"):format(key, value) end
    table.sort(fields)
    return "{" .. table.concat(fields, ", ") .. "}"
  end)
  return ok and text or "the game's error is a " .. type(problem) .. " that cannot be shown"
end

local function after(server, copy, row, ok, problem)
  if ok and coroutine.status(copy.thread) == "suspended" then return end
  for _, agent in ipairs(copy.agents) do if ok and agent.is_playing then ok, problem = false, "play returned without game_over" end end
  if not ok then
    for i, agent in ipairs(copy.agents) do
      if agent.is_playing or i == 1 then
        table.insert(copy.ends, {agent = agent.index, flags = FAILED + (copy.is_new and NEW or 0)})
        table.insert(server.failures, {row = row + agent.index, message = message_of(problem)})
      end
    end
  end
  copy.is_playing = false
  for _, agent in ipairs(copy.agents) do agent.waits, agent.is_playing = false, false end
end

local function start(server, copy, seed, row)
  copy.flags, copy.is_new, copy.is_playing, copy.agents = 1, true, true, {}
  for i = 1, server.game.num_agents or 1 do
    copy.agents[i] = setmetatable({copy = copy, index = i - 1}, Agent)
  end
  copy.thread = coroutine.create(server.game.play)
  local first = #copy.agents == 1 and copy.agents[1] or copy.agents
  after(server, copy, row, coroutine.resume(copy.thread, first, seed, server.settings))
end

-- The flags of an action in an observation, with a list for each choice of the action before.
local function flags_of(game, obs, k)
  local action, before = game.actions[k], game.actions[k - 1]
  local mask = obs.mask and (action.part == nil and obs.mask or obs.mask[action.part])
  local lists, found = before and #before.labels or 1, {}
  for i = 1, lists do
    local flags = mask and type(mask[1]) == "table" and mask[i] or mask
    for j = 1, #action.labels do found[#found + 1] = (not flags or flags[j]) and "\1" or "\0" end
  end
  return table.concat(found), mask ~= nil
end

-- Observations as a frame; false = an empty row. `asks` tells which ask for the action.
local function frame(server, rows, asks)
  local game, lengths, slots, present = server.game, {}, {}, {}
  local function slot(parts)
    present[#present + 1] = parts and "\1" or "\0"
    slots[#slots + 1] = padded(table.concat(parts or {}), "\0")
  end
  for _, name in ipairs(game.entity_names) do
    local values, format = {}, ("<" .. ("f"):rep(#game.entities[name]))
    for _, obs in ipairs(rows) do
      local entities = obs and obs[name] or {}
      lengths[#lengths + 1] = ("<i8"):pack(#entities)
      for _, entity in ipairs(entities) do values[#values + 1] = format:pack(table.unpack(entity)) end
    end
    slot(#game.entities[name] > 0 and values or nil)
    slot(nil)
  end
  for _, obs in ipairs(rows) do lengths[#lengths + 1] = ("<i8"):pack(obs and 1 or 0) end
  slot(nil) slot(nil) -- features and flags of `Global`
  for k = 1, #game.actions do
    local masks, has_mask, has_own = {}, false, false
    for i, obs in ipairs(rows) do
      local is_asked = obs and asks[i]
      lengths[#lengths + 1] = ("<i8"):pack(is_asked and 1 or 0)
      if is_asked then
        masks[#masks + 1], has_own = flags_of(game, obs, k)
        has_mask = has_mask or has_own
      end
    end
    slot(nil) slot(has_mask and masks or nil) slot(nil)
  end
  return padded(table.concat(present), "\0") .. table.concat(lengths) .. table.concat(slots)
end

local function answer(server, copies)
  local flags, rows, asks, scores, ends, num_agents = {}, {}, {}, {}, {}, server.game.num_agents or 1
  for c, copy in ipairs(copies) do
    flags[c] = string.char(copy.flags + (copy.is_playing and 0 or 2))
    for _, agent in ipairs(copy.agents) do
      rows[#rows + 1] = agent.waits and agent.obs
      asks[#asks + 1] = agent.waits
      scores[#scores + 1] = ("<d"):pack(agent.waits and agent.obs.score or 0)
    end
    table.sort(copy.ends, function(a, b) return a.agent < b.agent or a.agent == b.agent and a.flags < b.flags end)
    for _, last in ipairs(copy.ends) do
      last.row = (c - 1) * num_agents + last.agent
      ends[#ends + 1] = last
    end
  end
  local text, are_asked = #server.failures > 0 and padded(encode(server.failures), " ") or "", {}
  for i, row in ipairs(rows) do are_asked[i] = row and "\1" or "\0" end
  local parts = {
    ("<I8I8"):pack(#ends, #text), padded(table.concat(flags), "\0"),
    padded(table.concat(are_asked), "\0"), table.concat(scores), frame(server, rows, asks),
  }
  if #ends > 0 then
    local lasts, ask_lasts, columns = {}, {}, {{}, {}, {}}
    for i, last in ipairs(ends) do
      lasts[i], ask_lasts[i] = last.obs or false, last.asks
      columns[1][i], columns[2][i] = ("<i8"):pack(last.row), ("<i8"):pack(last.flags)
      columns[3][i] = ("<d"):pack(last.obs and last.obs.score or 0)
    end
    for _, column in ipairs(columns) do parts[#parts + 1] = table.concat(column) end
    parts[#parts + 1] = frame(server, lasts, ask_lasts)
  end
  parts[#parts + 1] = text
  send(STEP, table.concat(parts))
end

local function act(server, payload)
  local num_agents, at = server.game.num_agents or 1, 8 * #server.copies + 1
  for _, action in ipairs(server.game.actions) do
    for _, copy in ipairs(server.copies) do
      for _, agent in ipairs(copy.agents) do
        if agent.waits then
          local label = action.labels[("<i8"):unpack(payload, at) + 1] or error("ACT has an invalid choice")
          copy.given, at = action.part == nil and label or copy.given or {}, at + 8
          if action.part ~= nil then copy.given[action.part] = label end
        end
      end
    end
  end
  for c, copy in ipairs(server.copies) do
    local seed, row, given = ("<i8"):unpack(payload, 8 * c - 7), (c - 1) * num_agents, copy.given
    copy.flags, copy.is_new, copy.ends, copy.given = 0, false, {}, nil
    for _, agent in ipairs(copy.agents) do agent.waits = false end
    local waited = not copy.is_playing
    if not waited then after(server, copy, row, coroutine.resume(copy.thread, given)) end
    if not copy.is_playing and (waited or not server.hold) then start(server, copy, seed, row) end
  end
  answer(server, server.copies)
end

local function reset(server, payload)
  local count, chosen = ("<I8"):unpack(payload), {}
  if #payload ~= 8 + 16 * count then error("RESET has a wrong size") end
  for i = 1, count do
    local copy = server.copies[("<i8"):unpack(payload, 8 * i + 1) + 1] or error("RESET names an unknown copy")
    copy.ends = {}
    if copy.thread and copy.is_playing then coroutine.close(copy.thread) end
    start(server, copy, ("<i8"):unpack(payload, 8 * (count + i) + 1), (i - 1) * (server.game.num_agents or 1))
    chosen[i] = copy
  end
  answer(server, chosen)
end

local function begin(server, json)
  local game = server.game
  if not json:match('^{.*"protocol"%s*:%s*1%s*[,}].*}%s*$') then error("START must be JSON, with version 1 of the protocol") end
  server.settings, server.hold = settings_of(json, game.settings or {}), json:match('"hold"%s*:%s*true') ~= nil
  local entities = {}
  for i, name in ipairs(game.entity_names) do entities[i] = {name = name, features = game.entities[name]} end
  local actions = {}
  for k, action in ipairs(game.actions) do
    local given = k > 1 and {} or nil
    for i = 1, k - 1 do given[i] = game.actions[i].name end
    actions[k] = {name = action.name, kind = "global_categorical", labels = action.labels, given = given}
  end
  send(READY, padded(encode({
    num_agents = game.num_agents or 1,
    spaces = {global_features = {}, entities = entities, actions = actions},
  }), " "))
  for i = 1, tonumber(json:match('"num_envs"%s*:%s*(%d+)')) do server.copies[i] = {game = game, flags = 0, ends = {}, agents = {}} end
end

-- Serves a game until the host closes the connection. A game is a table with `name`, `play(agent,
-- seed, settings)`, `entities` (features by type), `entity_names` (their order), and one action for
-- the whole observation: its name `action` and its `labels`, or the `parts` of a decision, which are
-- chosen in this order: {{"turn", {"BACK", "ON"}}, ...}; optional are `num_agents`, whose agents take
-- turns, and `settings` with their defaults.
function entity_env.serve(game)
  print = function(...) -- games may print
    for i = 1, select("#", ...) do io.stderr:write(tostring((select(i, ...))), i < select("#", ...) and "\t" or "\n") end
  end
  for _, key in ipairs({"name", "play", "entities", "entity_names", "action"}) do if game[key] == nil then error("the game needs " .. key, 2) end end
  if (game.labels == nil) == (game.parts == nil) then error("the game needs labels or parts", 2) end
  game.is_part = {}
  game.actions = game.labels and {{name = game.action, labels = game.labels}} or {}
  for k, part in ipairs(game.parts or {}) do
    game.actions[k] = {name = game.action .. "." .. part[1], part = part[1], labels = part[2]}
    game.is_part[part[1]] = true
  end
  if os.getenv("ENTITY_ENV_ADDRESS") ~= "stdio" then return io.stderr:write('entity_env starts this program: entity-env check "exec+stdio:lua5.4 game.lua"\n') end
  local settings = game.settings or {}
  settings.is_object = true -- `encode` would write an empty table as a list
  send(HELLO, padded(encode({protocol = 1, name = game.name, token = os.getenv("ENTITY_ENV_TOKEN") or "", settings = settings}), " "))
  local server = {game = game, copies = {}, failures = {}}
  local handlers = {[START] = begin, [RESET] = reset, [ACT] = act}
  while true do
    local kind, payload = receive()
    if kind == CLOSE then os.exit(0) end
    server.failures = {}
    local ok, problem = pcall(handlers[kind] or function() error("message " .. kind .. " is not due") end, server, payload)
    if not ok then send(ERROR, padded(encode({message = message_of(problem)}), " ")) os.exit(1) end
  end
end
return entity_env
