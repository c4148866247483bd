package domain

import (
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// importedCodes holds the codes that an operator imported, packed, in their order: the code of coupon n is number n. Two codes
// are the same if they fold to the same text.
type importedCodes struct {
	key     [16]byte
	blocks  [][]byte            // length byte, then the code; a code never spans two blocks
	offsets table.Pages[uint32] // block number << blockBits | offset
	byText  table.Index         // hash of the folded code → number
}

const (
	blockBits = 16
	blockSize = 1 << blockBits
	// maxImportedBlocks follows from offsets of 32 bits: 65,536 blocks of 64 KiB hold at least 64 million codes.
	maxImportedBlocks = 1 << (32 - blockBits)
)

func (c *importedCodes) len() uint32 { return c.offsets.Len() }

// at returns imported code i, from 0, as a view: blocks are only appended to.
func (c *importedCodes) at(i uint32) string { return wire.View(c.bytesAt(i)) }

func (c *importedCodes) bytesAt(i uint32) []byte {
	offset := *c.offsets.At(i)
	block := c.blocks[offset>>blockBits]
	off := offset & (blockSize - 1)
	return block[off+1 : off+1+uint32(block[off])]
}

// find returns the number of a code as a person may type it.
func (c *importedCodes) find(text string) (uint32, bool) {
	folded := code.FoldImported(text)
	return c.byText.Find(sipHash64(c.key, folded), func(i uint32) bool {
		return code.FoldImported(c.at(i)) == folded
	})
}

// add appends a normalised code that is not there yet; false when there is no room left.
func (c *importedCodes) add(text string) bool {
	last := len(c.blocks) - 1
	if last < 0 || len(c.blocks[last])+1+len(text) > blockSize {
		if len(c.blocks) == maxImportedBlocks {
			return false
		}
		// The first block starts small, as most imports are.
		c.blocks = append(c.blocks, make([]byte, 0, 256))
		last++
	}
	off := len(c.blocks[last])
	c.blocks[last] = append(append(c.blocks[last], byte(len(text))), text...)
	c.addOffset(last, off)
	return true
}

// addOffset adds the next code, which is at that offset of that block.
func (c *importedCodes) addOffset(block, off int) {
	i, offset := c.offsets.Add(wire.MaxCodes)
	*offset = uint32(block)<<blockBits | uint32(off)
	c.byText.Add(c.hash(i), i, c.hash)
}

// addBlock appends a whole block as a snapshot holds it; false if it is not made of codes that are not there yet.
func (c *importedCodes) addBlock(block []byte) bool {
	c.blocks = append(c.blocks, block)
	for off := 0; off < len(block); {
		end := off + 1 + int(block[off])
		if end > len(block) {
			return false
		}
		text := string(block[off+1 : end])
		if normal, err := code.NormalizeImported(text); err != nil || normal != text {
			return false
		}
		if _, there := c.find(text); there {
			return false
		}
		c.addOffset(len(c.blocks)-1, off)
		off = end
	}
	return true
}

func (c *importedCodes) hash(i uint32) uint64 {
	return sipHash64(c.key, code.FoldImported(c.at(i)))
}
