// Draws tickets as programs in Node.js do: node draw.cjs '{"client": "redis" | "ioredis", "port", "count", "pipelined",
// "token", "version"}'. Prints what it was given, as a JSON list of strings.
const options = JSON.parse(process.argv[2]);

async function connect() {
  if (options.client === "ioredis") {
    const Redis = require("ioredis");
    const client = new Redis({ port: options.port, password: options.token, stringNumbers: true });
    return { take: () => client.incr("photos"), many: (n) => list(client.pipeline(), n), end: () => client.quit() };
  }
  const { createClient } = require("redis");
  const client = createClient({ socket: { port: options.port }, password: options.token, RESP: options.version });
  client.on("error", (error) => { throw error; });
  await client.connect();
  return {
    take: () => client.incr("photos"),
    many: async (n) => {
      const together = await Promise.all(Array.from({ length: n / 2 }, () => client.incr("photos")));
      const multi = client.multi();
      for (let i = 0; i < n / 2; i++) multi.incr("photos");
      return [...together, ...(await multi.exec())];
    },
    end: () => client.close(),
  };
}

// ioredis gives an error and a reply for each command.
async function list(pipeline, n) {
  for (let i = 0; i < n; i++) pipeline.incr("photos");
  return (await pipeline.exec()).map(([error, reply]) => { if (error) throw error; return reply; });
}

async function main() {
  const client = await connect();
  const given = options.pipelined ? await client.many(options.count) : [];
  while (given.length < options.count) given.push(await client.take());
  await client.end();
  console.log(JSON.stringify(given.map(String)));
}

main().catch((error) => { console.error(error); process.exit(1); });
