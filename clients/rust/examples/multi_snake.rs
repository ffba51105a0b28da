//! Multi-snake: snakes of different colors on one board, each with its own move. The rules are
//! those of entity_env.games.multi_snake.

use std::collections::VecDeque;

use entity_env::{actions, entities, settings, Agent, Categorical, Game, Obs, Random};

entities! {
    #[derive(Clone, Copy)]
    struct Head { x: usize, y: usize, color: usize }
    struct Segment { x: usize, y: usize, color: usize }
    struct Food { x: usize, y: usize, color: usize }
    struct Clock { step: u32 }
}

actions! {
    enum Move { Up = "UP", Down = "DOWN", Left = "LEFT", Right = "RIGHT" }
}

settings! {
    struct Settings {
        board_size: usize = 10,
        num_snakes: usize = 2,
        max_snake_length: usize = 11,
        max_step: u32 = 180,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Free,
    Blocked,
    Food(usize),
}

struct Board {
    settings: Settings,
    random: Random,
    clock: Clock,
    num_eaten: usize,
    cells: Vec<Cell>, // x * board_size + y
    heads: Vec<Head>,
    bodies: Vec<VecDeque<usize>>, // indices of segments, tail first
    segments: Vec<Segment>,
    foods: Vec<Food>,
}

impl Board {
    fn new(settings: Settings, seed: u64) -> Board {
        let (size, num_snakes) = (settings.board_size, settings.num_snakes);
        let mut board = Board {
            settings,
            random: Random::new(seed),
            clock: Clock { step: 0 },
            num_eaten: 0,
            cells: vec![Cell::Free; size * size],
            heads: Vec::new(),
            bodies: vec![VecDeque::new(); num_snakes],
            segments: Vec::new(),
            foods: Vec::new(),
        };
        for color in 0..num_snakes {
            let cell = board.free_cell();
            board.cells[cell] = Cell::Blocked;
            board.heads.push(Head { x: cell / size, y: cell % size, color });
        }
        for color in 0..num_snakes {
            let food = board.new_food(color);
            board.foods.push(food);
        }
        board
    }

    fn free_cell(&mut self) -> usize {
        loop {
            let cell = self.random.below(self.cells.len());
            if self.cells[cell] == Cell::Free {
                return cell;
            }
        }
    }

    fn new_food(&mut self, color: usize) -> Food {
        let (cell, size) = (self.free_cell(), self.settings.board_size);
        self.cells[cell] = Cell::Food(color);
        Food { x: cell / size, y: cell % size, color }
    }

    fn max_eaten(&self) -> usize {
        (self.settings.max_snake_length - 1) * self.settings.num_snakes
    }

    fn obs(&self) -> Obs {
        Obs::new(self.num_eaten as f64 / self.max_eaten() as f64)
            .globals(&self.clock)
            .actors(&self.heads)
            .entities(&self.segments)
            .entities(&self.foods)
    }

    fn cell(&self, x: usize, y: usize) -> usize {
        x * self.settings.board_size + y
    }

    /// The cell next to a head; `None` outside the board.
    fn target(&self, head: Head, direction: Move) -> Option<(usize, usize)> {
        let (x, y) = match direction {
            Move::Up => (head.x, head.y + 1),
            Move::Down => (head.x, head.y.checked_sub(1)?),
            Move::Left => (head.x.checked_sub(1)?, head.y),
            Move::Right => (head.x + 1, head.y),
        };
        let size = self.settings.board_size;
        (x < size && y < size).then_some((x, y))
    }

    /// Moves a snake; returns whether it has eaten, or `None` if its move ends the game.
    fn advance(&mut self, color: usize, direction: Move) -> Option<bool> {
        let head = self.heads[color];
        let (x, y) = self.target(head, direction)?;
        let cell = self.cell(x, y);
        let eats = self.cells[cell] == Cell::Food(color);
        if !eats && self.cells[cell] != Cell::Free {
            return None;
        }
        if eats && self.bodies[color].len() < self.settings.max_snake_length - 1 {
            self.bodies[color].push_back(self.segments.len());
            self.segments.push(Segment { x: head.x, y: head.y, color });
            self.num_eaten += 1;
        } else {
            self.follow(head);
        }
        self.cells[cell] = Cell::Blocked;
        self.heads[color] = Head { x, y, color };
        Some(eats)
    }

    /// Moves the tail to the cell of the head, and frees its cell.
    fn follow(&mut self, head: Head) {
        let body = &mut self.bodies[head.color];
        let (mut x, mut y) = (head.x, head.y);
        if let Some(tail) = body.pop_front() {
            body.push_back(tail);
            let tail = &mut self.segments[tail];
            std::mem::swap(&mut x, &mut tail.x);
            std::mem::swap(&mut y, &mut tail.y);
        }
        let cell = self.cell(x, y);
        self.cells[cell] = Cell::Free;
    }

    /// Moves all snakes; returns whether the game continues.
    fn step(&mut self, moves: &[Move]) -> bool {
        self.clock.step += 1;
        let mut is_over = false;
        let mut eaten = Vec::new();
        for (color, &direction) in moves.iter().enumerate() {
            match self.advance(color, direction) {
                Some(true) => eaten.push(color),
                Some(false) => (),
                None => is_over = true,
            }
        }
        // After all moves, so no snake runs into new food in this step.
        for color in eaten {
            self.foods[color] = self.new_food(color);
        }
        !is_over && self.num_eaten < self.max_eaten()
    }
}

async fn play(agent: Agent, seed: u64, settings: Settings) {
    let max_step = settings.max_step;
    let mut board = Board::new(settings, seed);
    while board.clock.step < max_step {
        let moves = agent.act::<Categorical<Move>>(board.obs()).await;
        if !board.step(&moves) {
            return agent.game_over(board.obs());
        }
    }
    agent.truncate(board.obs());
}

fn check(settings: &Settings) -> Result<(), String> {
    let Settings { board_size, num_snakes, max_snake_length, max_step } = *settings;
    if !(1..=1000).contains(&board_size) {
        return Err("multi_snake: board_size must be from 1 to 1000".to_string());
    }
    if num_snakes < 1 || max_snake_length < 2 || max_step < 1 {
        let text = "multi_snake: num_snakes and max_step must be at least 1, max_snake_length 2";
        return Err(text.to_string());
    }
    match num_snakes.checked_mul(max_snake_length.saturating_add(1)) {
        Some(needed) if needed <= board_size * board_size => Ok(()),
        _ => {
            let text = "multi_snake: board_size is too small for the snakes and their food";
            Err(text.to_string())
        }
    }
}

fn main() {
    Game::new("multi_snake", play)
        .globals::<Clock>()
        .entity::<Head>()
        .entity::<Segment>()
        .entity::<Food>()
        .action::<Categorical<Move>>()
        .check(check)
        .serve();
}
