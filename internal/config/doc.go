// Package config puts Varve's configuration together. [Config] is one struct
// made of the Config structs of the packages that have settings; everything
// else here works on its fields by reflection and knows no setting by name.
//
// A field needs two tags: yaml, its key, and doc, one sentence with unit and
// meaning. From the path of keys follow its names in every layer; a later
// layer wins:
//
//	default      DefaultConfig of the package
//	file         server:
//	               http_addr: 127.0.0.1:8080
//	environment  VARVE_SERVER_HTTP_ADDR=127.0.0.1:8080
//	flag         --server-http-addr=127.0.0.1:8080
//
// A name that no setting has is an error in every layer; it says where the name
// stands and which known name is nearest. All errors of all layers are reported
// at once.
package config
