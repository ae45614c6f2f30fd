<?php
// Drives the recipe for PHP: `take SEQUENCE COUNT` prints ids; `store COUNT` stores so many rows in the SQLite database
// DATABASE and prints the ids that are stored there.
use App\Models\Photo;
use App\Support\Tickets;
use Illuminate\Container\Container;
use Illuminate\Database\Capsule\Manager;
use Illuminate\Events\Dispatcher;
use Illuminate\Http\Client\Factory;
use Illuminate\Support\Facades\Facade;

foreach (['Container', 'Database', 'Events', 'Http', 'Support'] as $component) {
    require_once "Illuminate/$component/autoload.php";
}
require_once 'GuzzleHttp/autoload.php';
foreach (['Support/Tickets', 'Models/HasTicket', 'Models/Photo'] as $file) {
    require_once __DIR__ . "/app/$file.php";
}

$container = Container::getInstance();
$container->singleton(Factory::class);
Facade::setFacadeApplication($container);

function store(Container $container, int $count): array
{
    touch(getenv('DATABASE')); // Laravel takes a file that exists
    $manager = new Manager($container);
    $manager->addConnection(['driver' => 'sqlite', 'database' => getenv('DATABASE')]);
    $manager->setEventDispatcher(new Dispatcher($container));
    $manager->setAsGlobal();
    $manager->bootEloquent();
    Manager::schema()->create('photos', function ($table) {
        $table->unsignedBigInteger('id')->primary();
        $table->string('title');
    });
    $alone = Photo::create(['title' => 'alone']);
    Photo::add(array_fill(0, $count - 1, 'together'));
    if (json_decode(Photo::find($alone->id)->toJson())->id !== $alone->id) {
        throw new Exception("find does not find $alone->id");
    }
    return array_column(Manager::select('SELECT CAST(id AS TEXT) AS id FROM photos'), 'id');
}

[, $verb, $first] = $argv;
foreach ($verb === 'take' ? Tickets::take($first, (int) $argv[3]) : store($container, (int) $first) as $id) {
    echo "$id\n";
}
