// Connects the page of a game to the server of `entity-env play --browser`.

async function post(answer) {
  try {
    const headers = {"Content-Type": "application/json"};
    const response = await fetch("answer", {method: "POST", headers, body: JSON.stringify(answer)});
    return response.ok ? "" : await response.text();
  } catch {
    return "The game does not answer.";
  }
}

function showAnimation(film) {
  film.src = "watch";
}

// The link downloads the file.
function saveReplay() {}

const source = new EventSource("events");
for (const [name, take] of Object.entries(events)) {
  source.addEventListener(name, event => take(JSON.parse(event.data)));
}
source.addEventListener("bye", () => {
  source.close();
  endGame("The game has ended. This page can be closed.");
});
source.onerror = () => {
  $("problem").textContent = "The game does not answer: is the command still running?";
};
source.onopen = () => {
  $("problem").textContent = "";
};
