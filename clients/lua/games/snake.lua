-- Snake: one snake on a board. The rules are those of entity_env.games.snake.
local folder = arg[0]:match("^(.*)games/") or "../"
package.path = folder .. "?.lua;" .. package.path
local entity_env = require("entity_env")

local STEPS = {UP = {0, 1}, DOWN = {0, -1}, LEFT = {-1, 0}, RIGHT = {1, 0}}

local function play(agent, seed, settings)
  local size, random = settings.board_size, entity_env.random(seed)
  if size < 2 then error("snake: board_size must be at least 2", 0) end
  local taken, body, food, since_food = {}, {}, nil, 0 -- the tail of the body is first
  local function new_food()
    food, since_food = nil, 0
    local left = size * size - #body - 1
    if left == 0 then return end
    left = random:below(left)
    for cell = 0, size * size - 1 do
      if not taken[cell] then
        if left == 0 then food = {cell // size, cell % size} return end
        left = left - 1
      end
    end
  end
  local cell = random:below(size * size)
  local head = {cell // size, cell % size}
  taken[cell] = true
  new_food()
  while true do
    local obs = {score = #body, Head = {head}, Segment = {table.unpack(body)}, Food = {food}}
    if not food or since_food == size * size then return agent:game_over(obs, food ~= nil) end
    local move = agent:act(obs)
    if not move then return end
    local x, y = head[1] + STEPS[move][1], head[2] + STEPS[move][2]
    local is_inside = x >= 0 and x < size and y >= 0 and y < size
    local tail = body[1] or head -- leaves its cell in this step
    local is_tail = #body > 0 and tail[1] == x and tail[2] == y
    if not is_inside or taken[x * size + y] and not is_tail then return agent:game_over(obs) end
    local eats = food[1] == x and food[2] == y
    body[#body + 1] = head
    if not eats then
      taken[tail[1] * size + tail[2]] = nil
      table.remove(body, 1)
      since_food = since_food + 1
    end
    head = {x, y}
    taken[x * size + y] = true
    if eats then new_food() end
  end
end

entity_env.serve({
  name = "snake",
  play = play,
  entities = {Head = {"x", "y"}, Segment = {"x", "y"}, Food = {"x", "y"}},
  entity_names = {"Head", "Segment", "Food"},
  action = "Move",
  labels = {"UP", "DOWN", "LEFT", "RIGHT"},
  settings = {board_size = 10},
})
