// A client that is made from the description: it makes a task, claims it and finishes it.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

const [, , url, token] = process.argv;
const client = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${token}` } });

const made = await client.POST("/v1/verbs/flow.new", {
  body: { request: { plan: { title: "from TypeScript", tasks: [{ name: "only" }] }, source: { kind: "prompt", text: "x" } } },
});
if (!made.data) throw new Error(JSON.stringify(made.error));
const claimed = await client.POST("/v1/verbs/claim", { body: { request: {} } });
if (!claimed.data) throw new Error(JSON.stringify(claimed.error));
const [claim] = claimed.data.outcome.claims;
const done = await client.POST("/v1/verbs/finish", {
  body: { request: { id: claim.task.id, fence: claim.lease.token, how: { done: { no_change: "nothing to change" } }, message: "done" } },
});
if (!done.data) throw new Error(JSON.stringify(done.error));
console.log(claim.task.id, done.data.outcome.task.status);
