package kairos

import (
	"encoding/base64"
	"errors"
	"fmt"

	"varve/internal/datatype"
	"varve/internal/kairos/agg"
	"varve/internal/model"
)

// typeOfGroup returns the type that formats the values of a group of results, nil if
// they are numbers or texts, or of an unregistered type.
func typeOfGroup(types datatype.Registry, groupType string) *datatype.Type {
	if groupType == agg.TypeComplex {
		return types.Stored(model.TypeComplex)
	}
	return types.Stored(model.Type(groupType))
}

// appendTyped formats a value that is neither number nor text: by its type, or else as
// the base64 of the stored bytes, since only the owner of an unknown type can interpret
// them.
func appendTyped(dst []byte, p *agg.Point, typ *datatype.Type) ([]byte, error) {
	if typ == nil {
		dst = base64.StdEncoding.AppendEncode(append(dst, '"'), p.Data)
		return append(dst, '"'), nil
	}
	dst, err := typ.Append(dst, p.Data, appendDouble)
	if infinite, ok := errors.AsType[*datatype.NotFiniteError](err); ok {
		return dst, notANumber(p.TimeMS, infinite.Value)
	}
	if err != nil {
		return dst, fmt.Errorf("%s value at %d: %w", typ.Name, p.TimeMS, err)
	}
	return dst, nil
}
