# Drives the recipe for Ruby: `take SEQUENCE COUNT` prints ids; `store COUNT` stores so many rows in the SQLite database
# DATABASE and prints the ids that are stored there.
require "active_record"
require_relative "app/models/tickets"

def store(count)
  ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ENV.fetch("DATABASE"))
  require_relative "app/models/photo"
  require_relative "db/migrate/20260101000000_create_photos"
  ActiveRecord::Migration.verbose = false
  CreatePhotos.migrate(:up)
  alone = Photo.create!(title: "alone")
  Photo.add(["together"] * (count - 1))
  raise "find does not find #{alone.id}" unless Photo.find(alone.id).title == "alone"

  ActiveRecord::Base.connection.select_values("SELECT CAST(id AS TEXT) FROM photos")
end

verb, *rest = ARGV
puts(verb == "take" ? Tickets.take(rest[0], rest[1].to_i) : store(rest[0].to_i))
