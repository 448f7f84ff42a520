// Print the values of a partition, one request after another, until there are no more: node read_lines.mjs orders 0

const [topic, partition] = process.argv.slice(2);
let offset = "earliest";

async function* linesOf(answer) {
  let rest = "";
  for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    yield* lines;
  }
}

for (let count = 1; count > 0; ) {
  const path = `/v1/topics/${topic}/partitions/${partition}/record-lines?offset=${offset}`;
  const answer = await fetch(process.env.ROLLWAY_URL + path);
  if (!answer.ok) throw new Error(await answer.text());
  count = 0;
  for await (const line of linesOf(answer)) {
    const record = JSON.parse(line);
    const value = "value" in record ? record.value : Buffer.from(record.value_base64, "base64");
    console.log(record.offset, value);
    count += 1;
  }
  offset = answer.headers.get("Next-Offset");
}
