package backup

import "encoding/binary"

// frameReader counts the content of a compressed copy without decompressing it, so that progress can be reported in bytes of
// the stream, whose number is known from the start. The copy is a series of S2 frames: type, length in three bytes, and in
// data frames a checksum of four bytes before the block, which begins with its decompressed length.
type frameReader struct {
	head []byte // start of a frame, up to where its length can be read
	skip int64  // bytes left of the frame
}

// frameHead is the part of a frame that is read: its own head, the checksum, a length of at most five bytes.
const frameHead = 4 + 4 + 5

// Types of frames that hold data.
const (
	framePacked = 0x00
	framePlain  = 0x01
)

// count reads the next bytes and returns how many bytes the frames that began in them decompress to.
func (f *frameReader) count(p []byte) (n int64) {
	for len(p) > 0 {
		if f.skip > 0 {
			take := min(f.skip, int64(len(p)))
			f.skip -= take
			p = p[take:]
			continue
		}
		f.head = append(f.head, p[0])
		p = p[1:]
		if len(f.head) < 4 {
			continue
		}
		length := int64(f.head[1]) | int64(f.head[2])<<8 | int64(f.head[3])<<16
		if f.head[0] == framePacked && length >= 5 && len(f.head) < frameHead && int64(len(f.head)) < 4+length {
			continue
		}
		switch f.head[0] {
		case framePlain:
			n += max(0, length-4)
		case framePacked:
			if len(f.head) > 8 {
				unpacked, _ := binary.Uvarint(f.head[8:])
				n += int64(unpacked)
			}
		}
		f.skip = 4 + length - int64(len(f.head))
		f.head = f.head[:0]
	}
	return n
}
