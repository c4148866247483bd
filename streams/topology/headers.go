package topology

import "github.com/seed-4a2410e3/scrip/streams/seal"

// Headers of messages in the log and of command messages.
const (
	// HeaderCommands holds "<first>-<last>", the command sequences a step covers, contiguous from step to step.
	HeaderCommands = "Scrip-Commands"
	// HeaderCommandTime holds the stored timestamp of the last covered command.
	HeaderCommandTime = "Scrip-Command-Time"
	// HeaderTime holds the lane's clock after the step.
	HeaderTime = "Scrip-Time"
	// HeaderOwner holds the writer's nonce, new in each term.
	HeaderOwner = "Scrip-Owner"
	// HeaderFormat holds the log format, see Format.
	HeaderFormat = "Scrip-Format"
	// HeaderSealedFrom holds the sequence of the first sealed message of the stream: any later message without a seal is foreign.
	HeaderSealedFrom = "Scrip-Sealed-From"
	// HeaderSeal holds the seal, see package seal.
	HeaderSeal = seal.Header
	// HeaderReply, on a command message, holds the inbox for outcomes.
	HeaderReply = "Scrip-Reply"
	// HeaderRebase holds the command sequence a lane continues at: the only break in contiguity.
	HeaderRebase = "Scrip-Rebase"
	// HeaderSource, on a reminder message, holds "<event seq>:<line>:<last r>".
	HeaderSource = "Scrip-Source"
	// HeaderSourceDigest, on a reminder message, holds the digest of the event message named by HeaderSource.
	HeaderSourceDigest = "Scrip-Source-Digest"
)

const (
	// Format is the log format this program writes and the highest it reads: messages are sealed.
	Format = 2
	// FormatUnsealed is the one before it. A log that was created with it is sealed from the message on that the first owner of
	// this version wrote on a lane.
	FormatUnsealed = 1
)
