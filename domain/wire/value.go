package wire

import (
	"strconv"
	"time"
)

// appendValue appends a field and its value, which p points to, each field with a comma before it. Without a value the
// field is left out, unless it is marked as always written; a lead time (before) is written even if it is zero.
func appendValue(dst []byte, f Field, p any, cache *LineCache) []byte {
	key := fieldSpecs[f&^always].key
	switch p := p.(type) {
	case *string:
		if f == fCode {
			return cache.codeField(dst, *p)
		}
		return appendStringField(dst, key, *p)
	case *[]byte:
		return appendRawField(dst, key, *p)
	case *uint32:
		return appendUint(dst, f, key, uint64(*p))
	case *uint64:
		return appendUint(dst, f, key, *p)
	case *Instant:
		return cache.field(dst, key, *p)
	case *time.Duration:
		if *p == 0 && f != fBefore {
			return dst
		}
		return AppendText(append(dst, key...), p.String())
	case *[]string:
		return appendTextsField(dst, key, *p)
	case *[]RefusalCount:
		return append(appendCounts(append(append(dst, key...), '{'), *p), '}')
	case *bool:
		if *p {
			dst = append(append(dst, key...), "true"...)
		}
		return dst
	}
	panic("wire: no value of this type can be written: " + f.String())
}

func appendUint(dst []byte, f Field, key string, v uint64) []byte {
	if v == 0 && f&always == 0 {
		return dst
	}
	return strconv.AppendUint(append(dst, key...), v, 10)
}

func appendCounts(dst []byte, counts []RefusalCount) []byte {
	for i, r := range counts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendNumber(append(AppendText(dst, string(r.Refusal)), ':'), r.Count)
	}
	return dst
}

// readValue reads the value of a field of an event or an outcome into what p points to; nil = it is skipped. Texts and
// raw JSON are views of raw. Bounds are not checked: they hold for commands.
func readValue(p any, raw []byte) (err error) {
	switch p := p.(type) {
	case nil:
	case *string:
		*p, err = unquote(raw)
	case *[]byte:
		*p = raw
	case *uint32:
		var n uint64
		if n, err = strconv.ParseUint(View(raw), 10, 32); err == nil {
			*p = uint32(n)
		}
	case *uint64:
		*p, err = strconv.ParseUint(View(raw), 10, 64)
	case *Instant:
		if len(raw) < 2 || raw[0] != '"' {
			return errSyntax
		}
		*p, err = parseStamp(raw[1 : len(raw)-1])
	case *time.Duration:
		var s string
		if s, err = unquote(raw); err == nil {
			*p, err = time.ParseDuration(s)
		}
	case *[]string:
		*p, err = texts(raw)
	case *[]RefusalCount:
		*p, err = refusals(raw)
	case *bool:
		*p = string(raw) == "true"
	default:
		panic("wire: no value of this type can be read")
	}
	return err
}

// assign copies the value that from points to; both have the same type.
func assign(to, from any) {
	switch to := to.(type) {
	case *string:
		*to = *from.(*string)
	case *[]byte:
		*to = *from.(*[]byte)
	case *uint32:
		*to = *from.(*uint32)
	case *Instant:
		*to = *from.(*Instant)
	case *time.Duration:
		*to = *from.(*time.Duration)
	default:
		panic("wire: no setting has a value of this type")
	}
}
