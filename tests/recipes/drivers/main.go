// Drives the recipe for Go: `take SEQUENCE COUNT` prints ids; `store COUNT` stores so many rows in the MySQL database
// DATABASE and prints the ids that are stored there.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"

	_ "github.com/go-sql-driver/mysql"
)

func main() {
	count, err := strconv.Atoi(os.Args[len(os.Args)-1])
	check(err)
	if os.Args[1] == "take" {
		ids, err := take(context.Background(), os.Args[2], count)
		check(err)
		for _, id := range ids {
			fmt.Println(id)
		}
		return
	}
	db, err := sql.Open("mysql", os.Getenv("DATABASE"))
	check(err)
	_, err = db.Exec("CREATE TABLE photos (id BIGINT PRIMARY KEY, title VARCHAR(80) NOT NULL)")
	check(err)
	check(addPhotos(context.Background(), db, []string{"alone"}))
	check(addPhotos(context.Background(), db, make([]string, count-1)))
	rows, err := db.Query("SELECT CAST(id AS CHAR) FROM photos")
	check(err)
	for rows.Next() {
		var id string
		check(rows.Scan(&id))
		fmt.Println(id)
	}
	check(rows.Err())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
