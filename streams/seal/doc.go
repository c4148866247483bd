// Package seal proves that a holder of the log's code key wrote a message of the log or a snapshot.
//
//	code key ── HKDF-SHA-256, salt = log UUID ──┬── "scrip seal v1" ──────> seals of messages (64 bytes: two keys)
//	                                            └── "scrip snapshot v1" ──> seals of snapshots (32 bytes)
//
// The derived keys reveal neither the code key nor a code. Their holders can check seals and make them. Text and Parse
// transfer them to readers that must not have the code key.
//
// Seal of a message, 43 characters of base64url without padding in header Scrip-Seal:
//
//	HMAC-SHA-256(key 1, "scrip seal v1\n" stream "\n" sequence "\n" headers "\r\n" tag)
//
// stream is the stream's name (SCRIP_EVT_3), sequence the message's sequence in it in decimal, headers all Scrip- headers
// except Scrip-Seal, sorted, each as "name: value\r\n", and tag the 16 bytes of AES-256-GCM under key 2 with a nonce of 12
// zero bytes, no plaintext and the payload as additional data. The log's UUID is in the keys, the lane in the stream's
// name, so a sealed message is valid at one sequence of one stream only: it cannot be replayed at another one.
//
// The payload is hashed by AES-GCM instead of HMAC itself because a step has up to 512 KiB and SHA-256 is seven times slower.
// This is a universal hash under a secret key whose value only HMAC sees; the fixed nonce does no harm, because the tag is
// never published.
//
// The package has no state; a crash has no effect.
package seal
