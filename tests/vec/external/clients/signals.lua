-- A game with a decision in several parts, as in `twins.py`.
package.path = arg[0]:match("^(.*)tests/vec/external/") .. "clients/lua/?.lua;" .. package.path
local entity_env = require("entity_env")
local TURNS, FLAGS = {"BACK", "ON"}, {"LOW", "MID", "HIGH"}

local function uniform(random) return (random:draw() >> 11) / 2.0 ^ 53 end
local function index_of(list, item) for i, each in ipairs(list) do if each == item then return i - 1 end end end

local function draw_mask(random, count)
  local allowed = {}
  for i = 1, count do allowed[i] = random:below(2) == 1 end
  allowed[random:below(count) + 1] = true
  return allowed
end

local function look(random, score)
  local obs = {score = score, Rock = {}}
  for i = 1, random:below(3) do obs.Rock[i] = {uniform(random)} end
  local mask = {}
  if random:below(2) == 1 then mask.turn = draw_mask(random, 2) end
  if random:below(2) == 1 then mask.flag = {draw_mask(random, 3), draw_mask(random, 3)}
  elseif random:below(2) == 1 then mask.flag = draw_mask(random, 3) end
  if next(mask) then obs.mask = mask end
  return obs
end

entity_env.serve({
  name = "signals",
  entities = {Rock = {"size"}},
  entity_names = {"Rock"},
  action = "Signal",
  parts = {{"turn", TURNS}, {"flag", FLAGS}},
  play = function(agent, seed)
    local random, score = entity_env.random(seed), 0
    for _ = 1, 4 do
      local signal = agent:act(look(random, score))
      if not signal then return end
      score = score + 3 * index_of(TURNS, signal.turn) + index_of(FLAGS, signal.flag)
    end
    local last = look(random, score)
    agent:game_over(last, random:below(2) == 1)
  end,
})
