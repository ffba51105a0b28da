//! Tic-tac-toe: two agents that take turns. The rules are those of entity_env.games.tic_tac_toe.

use entity_env::{actions, entities, Agent, Choice, Game, Obs, Random};

entities! {
    struct Empty { x: usize, y: usize }
    struct Mine { x: usize, y: usize }
    struct Theirs { x: usize, y: usize }
}

actions! {
    enum Square { A1, B1, C1, A2, B2, C2, A3, B3, C3 }
}

const LINES: [[usize; 3]; 8] =
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [6, 4, 2]];

#[derive(Default)]
struct Board {
    owners: [Option<usize>; 9],
    moves: Vec<usize>, // squares in the order in which they were taken
}

impl Board {
    fn has_won(&self, agent: usize) -> bool {
        LINES.iter().any(|line| line.iter().all(|&square| self.owners[square] == Some(agent)))
    }

    fn obs(&self, agent: usize, score: f64) -> Obs {
        let taken = |is_mine: bool| {
            let moves = self.moves.iter().copied();
            moves.filter(move |&square| (self.owners[square] == Some(agent)) == is_mine)
        };
        let is_free = self.owners.map(|owner| owner.is_none());
        let free = (0..9).filter(|&square| is_free[square]);
        Obs::new(score)
            .entities(free.map(|square| Empty { x: square % 3, y: square / 3 }))
            .entities(taken(true).map(|square| Mine { x: square % 3, y: square / 3 }))
            .entities(taken(false).map(|square| Theirs { x: square % 3, y: square / 3 }))
            .mask::<Square>(is_free)
    }
}

async fn play(agents: [Agent; 2], seed: u64, _: ()) {
    let mut board = Board::default();
    let mut turn = Random::new(seed).below(2);
    while !board.has_won(1 - turn) && board.moves.len() < Square::ALL.len() {
        let square = agents[turn].act::<Square>(board.obs(turn, 0.0)).await as usize;
        board.owners[square] = Some(turn);
        board.moves.push(square);
        turn = 1 - turn;
    }
    for (i, agent) in agents.iter().enumerate() {
        let score = f64::from(board.has_won(i)) - f64::from(board.has_won(1 - i));
        agent.game_over(board.obs(i, score));
    }
}

fn main() {
    Game::new("tic_tac_toe", play)
        .entity::<Empty>()
        .entity::<Mine>()
        .entity::<Theirs>()
        .action::<Square>()
        .serve();
}
