package config

// removed are the settings of earlier versions, and what became of each.
var removed = map[string]string{
	"server.max_header": "a request may have 32KiB of headers, which no setting changes any more",
}

// orRemoved words the end of an error about an unknown name. spelt is how a
// setting is named where the name stands, as a flag for example.
func orRemoved(name string, spelt func(field) string, otherwise func() string) string {
	for key, why := range removed {
		if spelt(field{key: key}) == name {
			return "; it was removed: " + why
		}
	}
	return otherwise()
}
