// Tokens of an identity provider that is not ours: keys, key sets and signatures are made by Node's own cryptography.

import { createHmac, generateKeyPairSync, type KeyObject, sign } from "node:crypto"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { Server } from "../common/server"

const ISSUER = "https://auth.example"
const RULES = `
[[issuer]]
issuer = "${ISSUER}"
audience = "thalweg"
jwks_file = "jwks.json"
algorithms = ["EdDSA", "ES256", "RS256"]
grants = ["* users/{sub}/"]
`

const base64url = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url")
const now = () => Math.floor(Date.now() / 1000)

interface Key {
  alg: string
  kid: string
  privateKey: KeyObject
  publicKey: KeyObject
}

function newKey(alg: string, kid: string): Key {
  const pair =
    alg === "EdDSA"
      ? generateKeyPairSync("ed25519")
      : alg === "ES256"
        ? generateKeyPairSync("ec", { namedCurve: "P-256" })
        : generateKeyPairSync("rsa", { modulusLength: 2048 })
  return { alg, kid, ...pair }
}

function keySet(keys: Key[]): string {
  return JSON.stringify({
    keys: keys.map(({ alg, kid, publicKey }) => ({ ...publicKey.export({ format: "jwk" }), alg, kid, use: "sig" })),
  })
}

type Claims = Record<string, unknown>

const claims = (more: Claims = {}): Claims => ({ iss: ISSUER, aud: "thalweg", sub: "ann", exp: now() + 300, ...more })

function jwt(key: Key, body: Claims = claims(), header: Claims = {}): string {
  const text = `${base64url({ alg: key.alg, kid: key.kid, typ: "JWT", ...header })}.${base64url(body)}`
  const hash = key.alg === "EdDSA" ? null : "sha256"
  const signature = sign(hash, Buffer.from(text), { key: key.privateKey, dsaEncoding: "ieee-p1363" })
  return `${text}.${signature.toString("base64url")}`
}

const bearer = (token: string) => ({ Authorization: `Bearer ${token}` })

// A server of somebody else's has no such keys.
describe.runIf(process.env.THALWEG_TEST_BINARY)("tokens of an identity provider", () => {
  const keys = ["EdDSA", "ES256", "RS256"].map((alg) => newKey(alg, `key-${alg}`))
  const [first] = keys
  let server: Server

  beforeAll(async () => {
    server = await Server.inPlain(["--access-file", "access.toml"], { "access.toml": RULES, "jwks.json": keySet(keys) })
  })
  afterAll(() => server?.remove())

  const put = (stream: string, token: string) => server.ask("PUT", stream, { "Content-Type": "text/plain", ...bearer(token) })

  test.each(keys)("signed by $alg may do what its claims say, and no more", async (key) => {
    expect((await put(`users/ann/${key.alg}`, jwt(key))).status).toBe(201)
    expect((await put(`users/bob/${key.alg}`, jwt(key))).status).toBe(403)
    expect((await put(`users/${key.alg}`, jwt(key))).status).toBe(403)
  })

  const other = newKey("EdDSA", first.kid)
  const publicPem = first.publicKey.export({ format: "pem", type: "spki" })
  const confused = `${base64url({ alg: "HS256", kid: first.kid, typ: "JWT" })}.${base64url(claims())}`
  const refused: Record<string, string> = {
    "that has expired": jwt(first, claims({ exp: now() - 120 })),
    "that never expires": jwt(first, claims({ exp: undefined })),
    "that is not valid yet": jwt(first, claims({ nbf: now() + 600 })),
    "for another audience": jwt(first, claims({ aud: "elsewhere" })),
    "of another issuer": jwt(first, claims({ iss: "https://evil.example" })),
    "of another key by the same name": jwt(other),
    "of an unknown key": jwt({ ...other, kid: "unknown" }),
    "whose claims were changed": [jwt(first).split(".")[0], base64url(claims({ sub: "root" })), jwt(first).split(".")[2]].join("."),
    "without a signature": `${base64url({ alg: "none", typ: "JWT" })}.${base64url(claims())}.`,
    "whose secret is the public key": `${confused}.${createHmac("sha256", publicPem).update(confused).digest("base64url")}`,
    "of another algorithm than its key's": jwt(first, claims(), { alg: "ES256" }),
    "with a critical extension": jwt(first, claims(), { crit: ["b64"], b64: false }),
    "of another type": jwt(first, claims(), { typ: "dpop+jwt" }),
    "whose subject is a path": jwt(first, claims({ sub: "ann/../bob" })),
  }

  test.each(Object.entries(refused))("%s is refused", async (_, token) => {
    const answer = await put("users/ann/refused", token)
    expect([401, 403]).toContain(answer.status)
    expect(answer.body).not.toContain(token)
    expect((await server.ask("HEAD", "users/ann/refused", bearer(jwt(first)))).status).toBe(404)
  })

  test("count until the key set has another key", async () => {
    const next = newKey("EdDSA", "key-next")
    expect((await put("users/ann/rotated", jwt(next))).status).toBe(401)
    server.write("jwks.json", keySet([next]))
    expect((await server.reload()).status).toBe(200)
    expect((await put("users/ann/rotated", jwt(next))).status).toBe(201)
    expect((await put("users/ann/rotated-old", jwt(first))).status).toBe(401)
    server.write("jwks.json", "{ this is no key set")
    expect((await server.reload()).status).toBeGreaterThanOrEqual(400)
    expect((await put("users/ann/still", jwt(next))).status).toBe(201)
    server.write("jwks.json", keySet(keys))
    expect((await server.reload()).status).toBe(200)
  })

  test("end their live readers with them", async () => {
    const leeway = 60
    const token = jwt(first, claims({ exp: now() - leeway + 3 }))
    await server.ask("PUT", "users/ann/live", { "Content-Type": "text/plain", ...bearer(jwt(first)) })
    const begun = Date.now()
    const answer = await server.ask("GET", "users/ann/live?live=sse&offset=-1", bearer(token))
    expect(answer.status).toBe(200)
    expect(Date.now() - begun).toBeLessThan(10_000)
    expect(answer.body).toContain("event: control")
    expect((await server.ask("GET", "users/ann/live", bearer(token))).status).toBe(401)
  })
})
