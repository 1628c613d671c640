package api

import (
	"bytes"
	"encoding/base64"

	"varve/internal/timeline"
)

// A payload is the data of an event as it is stored: the text of a JSON value, or
// [timeline.BytesMark] and then any bytes. The first byte tells which.

// jsonPayload returns the payload of a valid JSON text. It replaces line breaks between tokens by
// spaces, in place, so that an event fits on a line. (JSON strings contain no line breaks.)
// Everything else stays as it is, byte for byte.
func jsonPayload(text []byte) []byte {
	for i, c := range text {
		if c == '\n' || c == '\r' {
			text[i] = ' '
		}
	}
	return text
}

// bytesPayload returns the payload of bytes in base64. text has no quotes.
func bytesPayload(text string) ([]byte, error) {
	payload := make([]byte, 1+base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(payload[1:], []byte(text))
	if err != nil {
		return nil, badf(`"data_base64" is not base64 (RFC 4648, with padding): %v`, err)
	}
	payload[0] = timeline.BytesMark
	return payload[:1+n], nil
}

// appendPayload appends the member "data" or "data_base64" of an event. It trusts the first byte,
// since only the functions above make payloads: checking the whole payload for each of a thousand
// readers would cost more than everything else. A payload that begins like no JSON is shown as
// bytes.
func appendPayload(to, payload []byte) []byte {
	switch {
	case len(payload) == 0:
		return append(to, `"data":null`...)
	case payload[0] == timeline.BytesMark:
		payload = payload[1:]
	case bytes.IndexByte([]byte(`{["-0123456789tfn`), payload[0]) >= 0:
		return append(append(to, `"data":`...), payload...)
	}
	to = append(to, `"data_base64":"`...)
	to = base64.StdEncoding.AppendEncode(to, payload)
	return append(to, '"')
}
