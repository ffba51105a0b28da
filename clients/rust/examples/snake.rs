//! Snake: one snake on a board. The rules are those of entity_env.games.snake.

use std::collections::VecDeque;

use entity_env::{actions, entities, settings, Agent, Game, Obs, Random};

entities! {
    #[derive(Clone, Copy, PartialEq)]
    struct Head { x: usize, y: usize }
    #[derive(PartialEq)]
    struct Segment { x: usize, y: usize }
    struct Food { x: usize, y: usize }
}

actions! {
    enum Move { Up = "UP", Down = "DOWN", Left = "LEFT", Right = "RIGHT" }
}

settings! {
    struct Settings { board_size: usize = 10 }
}

struct Board {
    size: usize,
    head: Head,
    body: VecDeque<Segment>, // tail first
    food: Option<Food>,
    is_taken: Vec<bool>,
    random: Random,
}

impl Board {
    fn new(size: usize, seed: u64) -> Board {
        let mut random = Random::new(seed);
        let cell = random.below(size * size);
        let mut is_taken = vec![false; size * size];
        is_taken[cell] = true;
        let head = Head { x: cell / size, y: cell % size };
        let mut board = Board { size, head, body: VecDeque::new(), food: None, is_taken, random };
        board.place_food();
        board
    }

    fn place_food(&mut self) {
        let num_free = self.is_taken.len() - self.body.len() - 1;
        if num_free == 0 {
            self.food = None;
            return;
        }
        let chosen = self.random.below(num_free);
        let mut free = (0..self.is_taken.len()).filter(|&cell| !self.is_taken[cell]);
        self.food = free.nth(chosen).map(|cell| Food { x: cell / self.size, y: cell % self.size });
    }

    fn obs(&self) -> Obs {
        let score = self.body.len() as f64;
        Obs::new(score).entities([self.head]).entities(&self.body).entities(&self.food)
    }

    /// The cell next to the head, if the snake can move there.
    fn target(&self, direction: Move) -> Option<Head> {
        let Head { x, y } = self.head;
        let head = match direction {
            Move::Up => Head { x, y: y + 1 },
            Move::Down => Head { x, y: y.checked_sub(1)? },
            Move::Left => Head { x: x.checked_sub(1)?, y },
            Move::Right => Head { x: x + 1, y },
        };
        // The tail leaves its cell in this step.
        let is_tail = self.body.front() == Some(&Segment { x: head.x, y: head.y });
        let is_inside = head.x < self.size && head.y < self.size;
        (is_inside && (is_tail || !self.is_taken[head.x * self.size + head.y])).then_some(head)
    }

    /// Moves the snake; returns whether it has eaten.
    fn advance(&mut self, head: Head) -> bool {
        let eats = self.food.as_ref().is_some_and(|food| (food.x, food.y) == (head.x, head.y));
        self.body.push_back(Segment { x: self.head.x, y: self.head.y });
        if !eats {
            if let Some(tail) = self.body.pop_front() {
                self.is_taken[tail.x * self.size + tail.y] = false;
            }
        }
        self.head = head;
        self.is_taken[head.x * self.size + head.y] = true;
        if eats {
            self.place_food();
        }
        eats
    }
}

async fn play(agent: Agent, seed: u64, Settings { board_size }: Settings) {
    let mut board = Board::new(board_size, seed);
    let mut steps_since_food = 0;
    while board.food.is_some() {
        if steps_since_food == board_size * board_size {
            return agent.truncate(board.obs());
        }
        let direction = agent.act::<Move>(board.obs()).await;
        let Some(head) = board.target(direction) else {
            break;
        };
        steps_since_food = if board.advance(head) { 0 } else { steps_since_food + 1 };
    }
    agent.game_over(board.obs());
}

fn main() {
    Game::new("snake", play)
        .entity::<Head>()
        .entity::<Segment>()
        .entity::<Food>()
        .action::<Move>()
        .check(|settings: &Settings| match settings.board_size {
            2..=1000 => Ok(()),
            _ => Err("snake: board_size must be from 2 to 1000".to_string()),
        })
        .serve();
}
